"""Conversions between floats and integers, and tables."""
