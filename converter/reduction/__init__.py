"""Reduction of a failing model to a small one that fails in the same way."""
