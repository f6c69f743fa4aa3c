"""Random networks for layer groups, and independent implementations of their cost and execution."""
