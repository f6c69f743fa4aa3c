"""ONNX models and graphs, and the engines with which their results are compared."""
