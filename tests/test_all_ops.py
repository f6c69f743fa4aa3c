"""Checks of every operator's definition. ``CASES`` are run by ``tests/schema/ops/conftest.py``."""

import inspect

import pytest

from tests.support.each import each
from tests.support.operators import contract
from tests.support.operators.op_cases import all_cases
from tpuconvert.schema.definition.op import OpKind, all_ops

OPERATORS = {name: definition for name, definition in all_ops().items() if definition.kind is not OpKind.CUSTOM}
GOLDEN = {entry["name"] for entry in contract.every_entry() if entry["examples"]}


TESTED_OTHERWISE = {"customed_ops": "what it computes is a plugin's business: tests/converter/test_plugins.py"}


@each("name", [name for name, d in OPERATORS.items() if d.kind is OpKind.TPU])
def test_operator_has_a_case_or_an_example(name: str) -> None:
    known = {case.op.name for case in all_cases()} | GOLDEN | set(TESTED_OTHERWISE)
    assert name in known, f"{name} has no case: write CASES in tests/schema/ops/test_{name}.py"


@each("name", OPERATORS)
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
