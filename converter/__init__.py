"""tpuconvert: converts ONNX, TFLite and Caffe networks to the SOPHON TPU operator set and runs them bit-exactly."""
