"""Export of quantized models to other toolchains, with the same integers."""
