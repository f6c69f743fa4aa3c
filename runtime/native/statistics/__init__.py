"""Statistics of tensors that a calibration takes during a run of the native engine."""
