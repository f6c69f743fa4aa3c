"""Runs of the float graph on samples, which give ranges and means."""
