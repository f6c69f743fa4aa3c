"""The lowerings to ONNX operators."""

from __future__ import annotations

from tpuconvert.exporters.lowerings import Lowerings
from tpuconvert.exporters.onnx_model.lowering import Lowering

lowers = Lowerings[Lowering]()
"""Decorator that registers the lowering of one or several TPU operators."""
