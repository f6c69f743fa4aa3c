"""Accuracy of INT8 models of tpuconvert and of other quantizers on the same images."""
