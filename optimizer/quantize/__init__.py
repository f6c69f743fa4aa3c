"""Calibration, quantization and legalization: from a float graph to one chip's integer operators."""

from tpuconvert.optimizer.precision_rules import Method
from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize.calibration.calibration import calibrate
from tpuconvert.optimizer.quantize.legalize import FloatNode, Legalized, as_float, legalize
from tpuconvert.optimizer.quantize.precision.precision import Precision, apply_rules
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.refinement.refinement import refine
from tpuconvert.optimizer.quantize.scales.annotate import quantize
from tpuconvert.optimizer.quantize.search.balancing import Balancing, balance, choose_balancing
from tpuconvert.optimizer.quantize.search.deciding import Quantize, float_paths, forget_annotations

__all__ = [
    "Balancing",
    "FloatNode",
    "Legalized",
    "Method",
    "Precision",
    "Quantize",
    "Range",
    "apply_rules",
    "as_float",
    "balance",
    "calibrate",
    "choose_balancing",
    "float_paths",
    "forget_annotations",
    "legalize",
    "prepare",
    "quantize",
    "refine",
]
