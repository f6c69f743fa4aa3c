"""Folding of shape arithmetic while an ONNX model is imported."""
