"""Calibration, quantization and legalization: from a float graph to one chip's integer operators."""

from tpuconvert.optimizer.prepare_quantization import prepare
from tpuconvert.optimizer.quantize.calibration.calibration import calibrate
from tpuconvert.optimizer.quantize.legalize import Legalized, as_float, legalize
from tpuconvert.optimizer.quantize.precision.precision import Precision, apply_rules
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.refinement.refinement import refine
from tpuconvert.optimizer.quantize.scales.annotate import quantize
from tpuconvert.optimizer.quantize.search.balancing import Balancing, balance, choose_balancing
from tpuconvert.optimizer.quantize.search.deciding import Quantize, float_paths, forget_annotations

__all__ = [
    "Balancing",
    "Legalized",
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
