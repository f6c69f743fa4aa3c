"""Matchers: one file per family of kernels selects the nodes that it executes."""
