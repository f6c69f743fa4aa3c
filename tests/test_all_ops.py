"""What holds for every operator. Cases are found in ``CASES`` of ``tests/ops/test_*.py``; there is no list to edit."""

import inspect
import os
from pathlib import Path

import contract
import pytest
from op_cases import Case, all_cases, equal_bits, type_of

from tpuconvert.runtime.session import Session
from tpuconvert.schema.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import OpKind, all_ops
from tpuconvert.schema.types import Chip

OPERATORS = {name: definition for name, definition in all_ops().items() if definition.kind is not OpKind.CUSTOM}
GOLDEN = {entry["name"] for entry in contract.every_entry() if entry["examples"]}


def chip_of(case: Case) -> Chip:
    return case.chips[-1]


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_reference(case: Case) -> None:
    """Arrays and types are those of the case, on each of its chips."""
    case.check()


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_model_of_this_operator(case: Case, tmp_path: Path) -> None:
    """A graph with the operator survives the file, parameters included, and runs with the same bytes."""
    graph = Graph(case.op.name)
    arrays = {f"x{number}": array for number, array in enumerate(case.inputs) if array is not None}
    values = {name: graph.input(name, type_of(array)) for name, array in arrays.items()}
    operands = [values.get(f"x{number}") for number in range(len(case.inputs))]
    for result in graph.add_all(case.op, *operands):
        graph.output(result)
    write_model(tmp_path / "one.tpum", FileModel(graph, chip_of(case), "0"))
    model = read_model(os.fspath(tmp_path / "one.tpum"))
    assert [str(node.op) for node in model.graph.nodes] == [str(case.op)]  # words, in which a NaN is like another
    results = list(Session(model, backend="reference").run(arrays).values())
    assert len(results) == len(case.outputs)
    for result, expected in zip(results, case.outputs, strict=True):
        assert equal_bits(result, expected)


TESTED_OTHERWISE = {"customed_ops": "what it computes is a plugin's business: tests/converter/test_plugins.py"}


@pytest.mark.parametrize("name", [name for name, d in OPERATORS.items() if d.kind is OpKind.TPU])
def test_operator_has_a_case_or_an_example(name: str) -> None:
    known = {case.op.name for case in all_cases()} | GOLDEN | set(TESTED_OTHERWISE)
    assert name in known, f"{name} has no case: write CASES in tests/ops/test_{name}.py"


@pytest.mark.parametrize("name", OPERATORS)
def test_definition_is_complete(name: str) -> None:
    definition = OPERATORS[name]
    assert definition.__doc__, f"{name}: the docstring of {definition.__name__} is its formula"
    for method in ("infer", "reference"):
        assert callable(getattr(definition, method, None)), f"{name}: {definition.__name__} has no {method}"
    declared = [None] * len(definition.inputs)
    try:
        inspect.signature(definition.infer).bind(None, *declared)
    except TypeError as error:
        pytest.fail(f"{name}: infer does not take the {len(declared)} operands that inputs declares: {error}")
    if definition.kind is OpKind.TPU:
        assert any(support.cases for support in definition.dtypes.values()), f"{name}: no chip has it"
