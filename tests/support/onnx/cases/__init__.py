"""Tables of ONNX nodes with inputs, for tests that compare with other implementations of the standard."""
