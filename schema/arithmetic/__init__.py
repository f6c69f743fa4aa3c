"""NumPy arithmetic that operators share: fixed point, convolution, pooling, bfloat16."""
