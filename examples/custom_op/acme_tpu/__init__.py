"""Operators of Acme's for tpuconvert."""
