"""Importing this module registers every matcher."""

from tpuconvert.runtime.native import (  # noqa: F401  they register themselves
    plan_bytes,
    plan_float,
    plan_float_attention,
    plan_float_detection,
    plan_float_images,
    plan_float_products,
    plan_float_rows,
    plan_movement,
    plan_norm_bytes,
    plan_pool,
    plan_products,
    plan_quantize,
    plan_residual,
    plan_runtime_products,
)
