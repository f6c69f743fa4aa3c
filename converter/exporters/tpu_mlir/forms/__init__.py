"""Lowerings of TPU operators, one module per family. Adding a module with decorated functions is enough."""
