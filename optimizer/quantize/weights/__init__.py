"""Rounding of weights, and packed weights."""
