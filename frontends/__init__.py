"""Readers of the source formats (ONNX, TFLite, Caffe): each turns a file into a Graph of TPU operators."""
