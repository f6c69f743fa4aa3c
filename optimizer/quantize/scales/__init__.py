"""Scales of tensors: the annotation of a graph."""
