"""Random ONNX graphs, typed and shaped by construction, and their comparison with ONNX Runtime."""
