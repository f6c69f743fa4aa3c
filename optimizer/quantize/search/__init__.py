"""Choices by the error at the outputs: methods, balancing, 16 bits, nodes in float."""
