"""Checks of commits, versions and wheels for a release, and environments for builds and type checkers."""
