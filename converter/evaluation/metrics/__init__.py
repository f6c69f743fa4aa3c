"""Metrics of ``tpuconvert evaluate``, one per file."""
