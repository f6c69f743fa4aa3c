"""Export to ONNX: the integer arithmetic of a quantized model in standard ONNX operators."""
