"""Frontends for ONNX, TFLite and Caffe: each converts a model file to a Graph of TPU operators."""
