"""Comparison of a model with its compiled program on a device."""
