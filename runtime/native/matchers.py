"""Importing this module registers every matcher."""

from tpuconvert.runtime.native import plan_movement, plan_products  # noqa: F401  imported for what it registers
