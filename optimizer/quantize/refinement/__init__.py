"""Corrections of the weights and biases of an integer graph."""
