"""Patterns, registry and application of the optimizer's rules."""
