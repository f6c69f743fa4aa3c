"""Every converter over the versions of its operator and the corners of its attributes, against onnxruntime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.onnx.cases import elements, further, operators, tensors, versions, windows
from tests.support.onnx.cases.case import Case
from tests.support.onnx.oracles import NEWEST_OPSET, assert_same
from tpuconvert.frontends.onnx.node import folds, onnx_op

TABLES = (versions, operators, further, elements, tensors, windows)
ELSEWHERE = {
    "test_control_flow.py, test_host_control_flow.py": ("If", "Loop", "Scan"),
    "test_further_operators.py, in one network": (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
        "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence",
    ),
    "test_random_numbers.py": ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "test_quantized.py, exactly": ("QLinearConv", "QLinearMatMul"),
}  # fmt: skip
"""Operators without a case: their inputs are no single tensors, or integers that have to be equal."""


def cases() -> Iterator[Any]:
    """All; of a case whose versions differ in nothing that it has, those between the oldest and the newest are slow."""
    for table in TABLES:
        for case in table.CASES:
            of_case = list(case.in_all_versions(NEWEST_OPSET))
            for index, version in enumerate(of_case):
                is_slow = table is not versions and 0 < index < len(of_case) - 1
                yield pytest.param(version, id=str(version), marks=pytest.mark.slow if is_slow else ())


@pytest.mark.parametrize("case", list(cases()))
def test_as_onnxruntime(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    # The tolerance is that of sums in another order, and of functions that other libraries compute.
    atol = max(case.atol, 2e-5)
    assert_same(case.model(), case.feeds, tmp_path, atol=atol, rtol=2e-4, differs=case.differs)


def test_every_case_has_a_version() -> None:
    without = [str(case) for table in TABLES for case in table.CASES if not list(case.in_all_versions(NEWEST_OPSET))]
    assert without == [], "their inputs or attributes fit no schema"


def test_every_converter_has_a_case() -> None:
    covered = {case.op for table in TABLES for case in table.CASES}
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    registered = {*onnx_op.names(), *folds.names()}
    assert sorted(registered - covered - elsewhere) == [], "add a case to tests/support/onnx/cases"
    assert sorted(elsewhere & covered) == [], "no longer exceptions"


def test_every_meaning_has_a_case() -> None:
    """A converter that began in some opset is run in one of the opsets that it is meant for."""
    opsets: dict[str, set[int]] = {}
    for table in TABLES:
        for case in table.CASES:
            opsets.setdefault(case.op, set()).update(item.opset for item in case.in_all_versions(NEWEST_OPSET))
    missing = []
    for entry in onnx_op.entries():
        later = [since for since in onnx_op.versions(entry.name) if since > entry.since]
        until = min(later, default=99)
        is_run = any(entry.since <= opset < until for opset in opsets.get(entry.name, ()))
        if not entry.domain and entry.name in opsets and until > 7 and not is_run:
            missing.append(f"{entry.name}-{entry.since}")
    assert missing == []
