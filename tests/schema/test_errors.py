"""Errors: stable ids, and one report with all problems."""

import pytest

from tpuconvert.schema import errors
from tpuconvert.schema.errors import NO_OPERATOR, UNSUPPORTED_ATTRIBUTE, ProblemList, TpuConvertError, UnsupportedError


def children(kind):
    return {kind, *(item for child in kind.__subclasses__() for item in children(child))}


def test_every_error_has_an_id_of_its_own_and_an_exit_code():
    kinds = {kind for kind in children(TpuConvertError) if kind.__module__ == errors.__name__}
    assert len({kind.id for kind in kinds}) == len(kinds)
    assert {kind.__name__: kind.exit_code for kind in kinds}["CorruptInputError"] == 4


def test_the_text_names_file_node_and_next_step():
    error = TpuConvertError("broke", file="m.onnx", node="conv_3", hint="do that")
    assert str(error) == "m.onnx: node 'conv_3': broke\n    do that"


def test_problems_are_grouped_and_counted():
    problems = ProblemList("mobilenet.onnx", "opset 11")
    problems.add(NO_OPERATOR, "NonMaxSuppression", "nms_0", hint="end the model before them")
    problems.add(NO_OPERATOR, "NonMaxSuppression", "nms_1", hint="end the model before them")
    problems.add(UNSUPPORTED_ATTRIBUTE, "Resize", "up", "mode='cubic'")
    problems.add(UNSUPPORTED_ATTRIBUTE, "Resize", "up", "mode='cubic'")
    with pytest.raises(UnsupportedError) as caught:
        problems.raise_if_any()
    assert str(caught.value).splitlines() == [
        "mobilenet.onnx: 3 problems in 2 kinds (opset 11), nothing was written",
        "  no TPU operator        NonMaxSuppression  'nms_0', 'nms_1'",
        "      end the model before them",
        "  unsupported attribute  Resize             'up'  mode='cubic'",
    ]


def test_many_nodes_are_counted_not_listed():
    problems = ProblemList("m.onnx")
    for index in range(9):
        problems.add(NO_OPERATOR, "Foo", f"n{index}")
    with pytest.raises(UnsupportedError, match="'n5' and 3 more"):
        problems.raise_if_any()


def test_no_problem_no_error():
    ProblemList("m.onnx").raise_if_any()


def test_lists_a_limited_number_of_groups() -> None:
    problems = ProblemList("net.onnx")
    for number in range(20_000):
        problems.add(UNSUPPORTED_ATTRIBUTE, "Relu", "node", f"attribute {number}")
    with pytest.raises(UnsupportedError) as caught:
        problems.raise_if_any()
    lines = str(caught.value).splitlines()
    assert len(lines) < 120 and lines[-1].strip() == "and 19,950 further groups of problems"
    assert len(caught.value.problems) == 20_000
