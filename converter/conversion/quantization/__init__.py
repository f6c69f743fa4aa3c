"""Quantization: ranges from samples or a file, and the integers computed from them."""
