"""Benchmark of the native engine against widely used CPU engines, interleaved on one machine. See README.md."""
