"""Lowerings of TPU operators, one module per family. All modules of this folder are imported automatically."""
