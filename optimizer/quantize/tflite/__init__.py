"""Lowerings that are bit-exact with TensorFlow Lite's reference kernels where the general ones round differently."""

# The forms register themselves when their modules are loaded.
import tpuconvert.optimizer.quantize.tflite.arithmetic
import tpuconvert.optimizer.quantize.tflite.functions
import tpuconvert.optimizer.quantize.tflite.movement
import tpuconvert.optimizer.quantize.tflite.products
import tpuconvert.optimizer.quantize.tflite.recurrent
import tpuconvert.optimizer.quantize.tflite.resize
import tpuconvert.optimizer.quantize.tflite.softmax
import tpuconvert.optimizer.quantize.tflite.sums  # noqa: F401  they register themselves
from tpuconvert.optimizer.quantize.tflite.forms import exact_form
from tpuconvert.optimizer.quantize.tflite.recurrent import forget_inner_scales

__all__ = ["exact_form", "forget_inner_scales"]
