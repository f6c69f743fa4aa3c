"""Lowerings of TPU operators to ONNX, one module per family. All modules of this folder are imported automatically."""
