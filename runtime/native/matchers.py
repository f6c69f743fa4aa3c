"""Importing this module registers every matcher."""

from tpuconvert.runtime.native import plan_bytes, plan_movement, plan_pool, plan_products, plan_quantize  # noqa: F401
