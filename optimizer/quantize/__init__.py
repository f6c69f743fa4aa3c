"""Calibration, quantization and legalization: from a float graph to one chip's integer operators."""

from tpuconvert.optimizer.quantize.annotate import quantize
from tpuconvert.optimizer.quantize.calibration import calibrate
from tpuconvert.optimizer.quantize.deciding import float_paths, forget_annotations
from tpuconvert.optimizer.quantize.legalize import FloatNode, Legalized, as_float, legalize
from tpuconvert.optimizer.quantize.prepare import prepare
from tpuconvert.optimizer.quantize.ranges import Method, Range
from tpuconvert.optimizer.quantize.refinement import refine

__all__ = [
    "FloatNode",
    "Legalized",
    "Method",
    "Range",
    "as_float",
    "calibrate",
    "float_paths",
    "forget_annotations",
    "legalize",
    "prepare",
    "quantize",
    "refine",
]
