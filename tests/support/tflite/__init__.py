"""TFLite models, and the reference kernels with which their results are compared."""
