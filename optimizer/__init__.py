"""Graph rewriting: rules and their engine, constant folding, chip lowering, quantization and legalization."""

from tpuconvert.optimizer.constant_operands import provide_tensors
from tpuconvert.optimizer.expand_composites import (
    expand_composites,
    expand_where_illegal,
    is_expandable,
    why_not_expandable,
)
from tpuconvert.optimizer.fit_to_chip import fit_to_chip
from tpuconvert.optimizer.pipeline import optimize

__all__ = [
    "expand_composites",
    "expand_where_illegal",
    "fit_to_chip",
    "is_expandable",
    "optimize",
    "provide_tensors",
    "why_not_expandable",
]
