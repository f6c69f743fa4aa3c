"""Operators of the atomic instruction set."""
