"""RandomNormal, RandomUniform and their Like forms: constants from a generator with a seed.

ONNX does not define the generator, so that no two implementations give equal numbers. Here the numbers are those of a
Philox4x64 counter-based generator whose key is the float32 seed as its 32 bits. A uniform number is the upper 24 bits
of a 64-bit word times 2^-24; normal numbers are computed by the Box-Muller transform in float64 from pairs of words.
They are constants of the model: every run uses the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tpuconvert.frontends.onnx.file.element_types import ELEMENTS, FLOAT, Element, describe
from tpuconvert.frontends.onnx.node import Folded, OnnxNode, onnx_op
from tpuconvert.frontends.registry import Kind
from tpuconvert.schema.errors import UNSUPPORTED_TYPE
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array

DEFAULT_SEED = 0.0
_LIMITS = "a constant of the model; other numbers than those of ONNX Runtime"


def uniform_numbers(seed: float, count: int) -> Array:
    """Return numbers in [0, 1) as float64; they are multiples of 2^-24."""
    return (_words(seed, count) >> np.uint64(40)).astype(np.float64) * 2.0**-24


def normal_numbers(seed: float, count: int) -> Array:
    """Return numbers with mean 0 and standard deviation 1 as float64."""
    words = _words(seed, 2 * count) >> np.uint64(11)
    radius = (words[0::2].astype(np.float64) + 1.0) * 2.0**-53  # in (0, 1]
    angle = words[1::2].astype(np.float64) * 2.0**-53
    normal: Array = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * math.pi * angle)
    return normal


def _words(seed: float, count: int) -> Array:
    bits = int(np.float32(seed).view(np.uint32))
    words: Array = np.random.Philox(key=bits).random_raw(count)
    return words


@onnx_op("RandomNormal", since=1, kind=Kind.FOLDED, limits=_LIMITS)
def random_normal(node: OnnxNode, g: Graph) -> Folded:
    """Normally distributed numbers as a constant."""
    return _normal(node, g, node.required_attr("shape", (0,)), FLOAT)


@onnx_op("RandomNormalLike", since=1, kind=Kind.FOLDED, limits=_LIMITS)
def random_normal_like(node: OnnxNode, g: Graph) -> Folded:
    """Normally distributed numbers in the shape of the input, as a constant."""
    return _normal(node, g, node.shape(0), node.element(0))


@onnx_op("RandomUniform", since=1, kind=Kind.FOLDED, limits=_LIMITS)
def random_uniform(node: OnnxNode, g: Graph) -> Folded:
    """Uniformly distributed numbers as a constant."""
    return _uniform(node, g, node.required_attr("shape", (0,)), FLOAT)


@onnx_op("RandomUniformLike", since=1, kind=Kind.FOLDED, limits=_LIMITS)
def random_uniform_like(node: OnnxNode, g: Graph) -> Folded:
    """Uniformly distributed numbers in the shape of the input, as a constant."""
    return _uniform(node, g, node.shape(0), node.element(0))


def _normal(node: OnnxNode, g: Graph, shape: Sequence[int], default: Element) -> Folded:
    mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    element = _element(node, default)
    count = _count(node, shape)
    return _folded(normal_numbers(_seed(node, g), count) * scale + mean, shape, element)


def _uniform(node: OnnxNode, g: Graph, shape: Sequence[int], default: Element) -> Folded:
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    element = _element(node, default)
    count = _count(node, shape)
    return _folded(uniform_numbers(_seed(node, g), count) * (high - low) + low, shape, element)


def _folded(numbers: Array, shape: Sequence[int], element: Element) -> Folded:
    return Folded(numbers.astype(element.numpy).reshape([int(extent) for extent in shape]), element)


def _element(node: OnnxNode, default: Element) -> Element:
    code = node.attr("dtype", default.code)
    if code not in ELEMENTS or not ELEMENTS[code].is_float:
        raise node.fail(UNSUPPORTED_TYPE, f"dtype is {describe(code)}", "supported: floating point")
    return ELEMENTS[code]


def _count(node: OnnxNode, shape: Sequence[int]) -> int:
    node.budget(shape, 8)
    return math.prod(int(extent) for extent in shape)


def _seed(node: OnnxNode, g: Graph) -> float:
    seed: float | None = node.optional_attr("seed")
    if seed is None:
        g.notes.append(f"{node.op_type} '{node.name}' has no seed; its numbers are those of the seed {DEFAULT_SEED:g}")
    return DEFAULT_SEED if seed is None else node.required_attr("seed", 0.0)
