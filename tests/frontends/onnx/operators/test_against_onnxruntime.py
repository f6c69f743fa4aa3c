"""Every converter over the versions of its operator and the corners of its attributes, against onnxruntime."""

from pathlib import Path

import pytest

from tests.support.each import check_each
from tests.support.onnx.cases import elements, further, operators, tensors, versions, windows
from tests.support.onnx.cases.case import Case
from tests.support.onnx.cases.selection import selections, version_limits
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
"""Operators without a case: their inputs are not single tensors, or integers that have to be equal."""


CASES = [version for table in TABLES for case in table.CASES for version in selections(case, NEWEST_OPSET)]
"""Each in one opset per converter and per side of the versions that the converter compares."""


@pytest.mark.parametrize("op", sorted({case.op for case in CASES}))
def test_as_onnxruntime(op: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

    def check(case: Case) -> None:
        # The tolerance covers sums in another order, and functions that other libraries compute.
        atol = max(case.atol, 2e-5)
        assert_same(case.model(), case.feeds, tmp_path, atol=atol, rtol=2e-4, differs=case.differs)

    check_each(check, [case for case in CASES if case.op == op])


def test_opsets_are_told_apart_where_converters_do_it() -> None:
    """Softmax has two converters; Reshape reads allowzero since 14; the limit of ReduceSum is an argument."""
    softmax = [onnx_op.find("Softmax", version=opset) for opset in (11, 13)]
    assert softmax[0] is not softmax[1]
    for name, opset, limit in (("Reshape", 14, 14), ("ArgMax", 13, 12), ("ReduceSum", 13, 13), ("ReduceMax", 18, 18)):
        entry = onnx_op.find(name, version=opset)
        assert entry is not None and limit in version_limits(entry.converter), name  # type: ignore[arg-type]
    case = next(case for case in elements.CASES if case.op == "Abs")
    assert [version.opset for version in selections(case, NEWEST_OPSET)] == [NEWEST_OPSET]


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
            opsets.setdefault(case.op, set()).update(item.opset for item in selections(case, NEWEST_OPSET))
    missing = []
    for entry in onnx_op.entries():
        later = [since for since in onnx_op.versions(entry.name) if since > entry.since]
        until = min(later, default=99)
        is_run = any(entry.since <= opset < until for opset in opsets.get(entry.name, ()))
        if not entry.domain and entry.name in opsets and until > 7 and not is_run:
            missing.append(f"{entry.name}-{entry.since}")
    assert missing == []
