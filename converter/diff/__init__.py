"""Comparison of two models: nodes matched by structure, and everything that differs between them."""
