"""Networks for tests of quantization."""
