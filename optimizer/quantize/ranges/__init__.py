"""Ranges and thresholds of tensors, and the calibration methods."""
