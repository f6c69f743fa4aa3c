"""Networks from PyTorch's exporters and graphs of NNSmith, converted and compared with ONNX Runtime."""
