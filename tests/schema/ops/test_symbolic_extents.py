"""Extents of results for symbolic extents that are sums, products or quotients: formulas have the right values."""

import functools
from collections.abc import Iterator

import pytest

from tests.support.operators import contract
from tests.support.operators.contract import Entry
from tpuconvert.schema.definition.extents import evaluate_extent
from tpuconvert.schema.errors import ShapeError, UnsupportedError
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.pool import Pool
from tpuconvert.schema.ops.resize import ResizeNearest
from tpuconvert.schema.types import F32, Dim, DType, TensorType

FORMULAS = ("n{0}", "n{0}+1", "n{0}-1", "2*n{0}", "2*n{0}+1", "ceil((n{0}+1)/2)", "m{0}*n{0}", "m{0}+n{0}")


@functools.cache
def numbers_for(formula: str, extent: int) -> dict[str, int] | None:
    """Return values of the names for which a formula with that extent has it as its value; None if there are none."""
    for n in range(3 * extent + 4):
        for m in (1, 2, 3, extent - n):
            names = {f"n{extent}": n, f"m{extent}": m}
            used = {name: value for name, value in names.items() if name in formula}
            if min(used.values()) >= 0 and evaluate_extent(formula, used) == extent:
                return used
    return None


def symbolic(types: list[TensorType | None], formula: str) -> tuple[list[TensorType | None], dict[str, int]]:
    """Return types whose extents above 1 are formulas where these can have them, and the values of their names."""
    numbers: dict[str, int] = {}

    def named(extent: Dim) -> Dim:
        assert isinstance(extent, int)
        if extent < 2:
            return extent
        text = formula.format(extent)
        found = numbers_for(text, extent)
        if found is None:  # such as 2*n for an odd extent
            return extent
        numbers.update(found)
        return text

    changed = [None if each is None else TensorType(each.dtype, tuple(map(named, each.shape))) for each in types]
    return changed, numbers


def examples() -> Iterator[tuple[Entry, int]]:
    for entry in contract.defined_entries():
        for index in range(len(entry["examples"])):
            yield entry, index


def check(op: object, types: list[TensorType | None], formula: str) -> bool:
    """Compare the extents; return False if the operator needs numbers."""
    concrete = op.infer(*types)  # type: ignore[attr-defined]  # any operator
    changed, numbers = symbolic(types, formula)
    try:
        results = op.infer(*changed)  # type: ignore[attr-defined]
    except (ShapeError, UnsupportedError, ValueError, TypeError):
        return False
    for result, expected in zip(results, concrete, strict=True):
        if any("?" in str(extent) for extent in result.shape):  # depends on data
            return False
        found = [evaluate_extent(str(extent), numbers) for extent in result.shape]
        assert found == list(expected.shape), f"{op} of {changed}: {result}"
    return True


@pytest.mark.parametrize("formula", FORMULAS)
def test_examples_of_all_operators(formula: str) -> None:
    inferred = 0
    for entry, index in examples():
        example = entry["examples"][index]
        operands = contract.arguments(entry, example)
        first = next(each for each in operands if each is not None)
        try:
            op = contract.build(entry, example["params"], DType.of(first.dtype))
            types = contract.types_of(operands)
            op.infer(*types)
        except (ShapeError, ValueError, TypeError):
            continue  # the result type is a parameter with one choice; other tests build these
        inferred += check(op, types, formula)
    assert inferred > 250


WINDOWS = [
    Pool(kernel_h=kernel, kernel_w=kernel, stride_h=stride, stride_w=stride, is_ceil_mode=ceil,
         ensure_pool_image=ensures, pad_h=pad, pad_h_offset=more - pad, pad_w=more, pad_w_offset=pad - more)
    for kernel in (1, 2, 3)
    for stride in (1, 2, 3)
    for pad in range(kernel)
    for more in range(kernel)
    for ceil in (False, True)
    for ensures in (False, True)
]  # fmt: skip
SCALES = [
    each
    for factor in (0.5, 1.5, 2.0, 0.75)
    for each in (
        Interpolate(scale_factor=(factor, factor), platform=PlatForm.TENSORFLOW, method=InterpolateMode.NEAREST),
        ResizeNearest(scales=(factor, factor), sizes=(0, 0)),
    )
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_windows_and_scales(formula: str) -> None:
    for op in (*WINDOWS, *SCALES):
        for height, width in ((7, 5), (6, 8), (9, 4)):
            assert check(op, [TensorType(F32, (1, 2, height, width))], formula)
