"""Operators that the host executes."""
