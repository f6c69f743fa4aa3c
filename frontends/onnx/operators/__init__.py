"""Converters of ONNX operators."""
