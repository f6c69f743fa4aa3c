"""Sessions on images, benchmarks, and generation of text."""
