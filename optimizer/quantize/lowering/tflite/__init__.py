"""Lowerings that are bit-exact with TensorFlow Lite's reference kernels where the general ones round differently."""

from tpuconvert.optimizer.quantize.lowering.tflite.comparison import compared_operands
from tpuconvert.optimizer.quantize.lowering.tflite.forms import exact_form
from tpuconvert.optimizer.quantize.lowering.tflite.recurrent import forget_inner_scales
from tpuconvert.schema.discovery import import_modules

import_modules(__name__)

__all__ = ["compared_operands", "exact_form", "forget_inner_scales"]
