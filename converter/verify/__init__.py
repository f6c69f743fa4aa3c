"""Comparison of a model with its source, tensor by tensor."""
