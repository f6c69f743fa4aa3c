"""Every float operator against an independent implementation, listed in ``float_checks``."""

import dataclasses

import numpy as np
import pytest

from tests.support.each import each
from tests.support.operators import contract
from tests.support.operators.float_checks import BY_PYTHON, CHECKS, EXACT, SUMS, Check
from tests.support.operators.integer_oracles import ORACLES
from tests.support.operators.integer_oracles.base import COMPUTES_NOTHING
from tpuconvert.schema.definition.op import ALL, Op, OpKind, all_ops
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.types import F16, F32, Chip, DType, Scalar, TensorType


def computes(definition: type[Op]) -> bool:
    return definition.kind is OpKind.TPU and definition.name not in COMPUTES_NOTHING


def is_float(definition: type[Op]) -> bool:
    return computes(definition) and any(
        dtype.is_float
        for support in definition.dtypes.values()
        for case in support.cases
        for dtypes in case.operands.values()
        for dtype in dtypes
    )


def takes(name: str, dtype: DType) -> bool:
    definition = all_ops()[name]
    return any(
        dtype in case.operands.get(definition.inputs[0].name, case.operands.get(ALL, ()))
        for support in definition.dtypes.values()
        for case in support.cases
    )


def compare(check_: Check) -> None:
    types = [None if array is None else TensorType(DType.of(array.dtype), array.shape) for array in check_.inputs]
    inferred = check_.op.infer(*types)
    chips = [
        chip
        for chip in Chip
        if check(check_.op, chip, types, inferred, [True] * len(types)).status is not Status.ILLEGAL
        or check(check_.op, chip, types, inferred).status is not Status.ILLEGAL
    ]
    assert chips, f"{check_.op}: no chip takes {types}"
    for chip in chips:
        found = check_.op.evaluate(*check_.inputs, chip=chip)
        assert len(found) >= len(check_.expected)
        for result, expected in zip(found, check_.expected, strict=False):
            assert result.dtype == expected.dtype, check_.op
            assert result.shape == expected.shape, check_.op
            if check_.tolerance == EXACT:
                np.testing.assert_array_equal(result, expected, err_msg=str(check_.op))
                continue
            limit = check_.tolerance * float(np.abs(expected).max(initial=0))
            np.testing.assert_allclose(result, expected, rtol=check_.tolerance, atol=limit, err_msg=str(check_.op))


@pytest.mark.parametrize("name", [name for name in CHECKS if name in all_ops()])
def test_agrees_with_onnx(name: str) -> None:
    for seed in range(3):
        for check_ in CHECKS[name](name, np.random.default_rng(seed)):
            compare(check_)


HALF = [name for name in CHECKS if name in all_ops() and name != "cast" and takes(name, F16)]


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_single_precision_rounded_once(name: str) -> None:
    compared = 0
    for check_ in CHECKS[name](name, np.random.default_rng(7)):
        halves = [a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in check_.inputs]
        wide = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in halves]
        scalars = {field: Scalar(F16, float(np.float16(item.value))) for field, item in check_.op.scalars().items()}
        op = dataclasses.replace(check_.op, **scalars)
        types = [None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in halves]
        if check(op, Chip.BM1686, types, op.infer(*types)).status is Status.ILLEGAL:
            continue
        single = dataclasses.replace(
            check_.op, **{field: Scalar(F32, item.value) for field, item in op.scalars().items()}
        )
        with np.errstate(over="ignore"):
            expected = [
                a.astype(np.float16) if a.dtype == np.float32 else a for a in single.evaluate(*wide, chip=Chip.BM1686)
            ]
        compare(Check(op, halves, expected, 1e-3 if check_.tolerance == SUMS else EXACT))
        compared += 1
    assert compared or name in ("active", "active_param")


OF_THE_SET = {entry["name"] for entry in contract.document()["ops"]}
FLOAT = [name for name, definition in all_ops().items() if name in OF_THE_SET and is_float(definition)]
"""Operators of plugins are tested by the cases in their own files."""


@each("name", FLOAT)
def test_every_float_operator_is_compared(name: str) -> None:
    assert name in CHECKS or name in BY_PYTHON, f"{name} computes with floats and is compared with nothing"


def test_what_onnx_does_not_have_has_an_oracle() -> None:
    assert set(BY_PYTHON) <= set(ORACLES)
    assert not set(BY_PYTHON) & set(CHECKS)
