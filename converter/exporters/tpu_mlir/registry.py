"""The lowerings to the ``tpu`` dialect."""

from __future__ import annotations

from tpuconvert.exporters.lowerings import Lowerings
from tpuconvert.exporters.tpu_mlir.lowering import Lowering

lowers = Lowerings[Lowering]()
"""Decorator that registers the lowering of one or several TPU operators for BM1684X and BM1688."""

lowers_floats = Lowerings[Lowering]()
"""Decorator that registers the lowering of nodes that compute FLOAT32 from FLOAT32, for BM1684X and BM1688."""

lowers_bm1684 = Lowerings[Lowering]()
"""Decorator that registers the lowering of one or several TPU operators for BM1684."""
