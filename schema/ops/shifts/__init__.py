"""Shifts of integers by constants and by tensors."""
