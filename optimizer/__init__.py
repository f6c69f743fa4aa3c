"""Rewriting graphs: rules and their engine, constant folding, quantization, legalization for chips."""

from tpuconvert.optimizer.engine import Trace
from tpuconvert.optimizer.pipeline import STAGES, optimize

__all__ = ["STAGES", "Trace", "optimize"]
