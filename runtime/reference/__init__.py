"""Executor with NumPy: plan, evaluation of nodes, partition of a graph."""
