"""INT8 accuracy of trained models in public wheels: tpuconvert beside other quantizers, by the metric of the task."""
