"""Every worked example of the specification, on every chip it applies to. New definitions are found automatically."""

import filecmp

import numpy as np
import pytest

from tests.support.each import each
from tests.support.operators import contract
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.legality import Status, check
from tpuconvert.schema.types import F32, Array, Chip, DType, TensorType

EXAMPLES = [(entry, example) for entry in contract.defined_entries() for example in entry["examples"]]
SHAPE_EXAMPLES = [
    (entry, example) for entry in contract.defined_entries() for example in entry.get("shape_examples", [])
]


def names_of(case):
    entry, example = case
    return f"{entry['name']}: {example.get('name', example)}"


def test_every_operator_has_a_definition():
    assert contract.undefined_names() == []


@pytest.mark.parametrize(("file", "count"), [("operators.yaml", 240), ("atomics.yaml", 44), ("synet.yaml", 32)])
def test_every_example_is_run(file, count):
    entries = contract.document(file)["ops"]
    assert len(entries) == contract.document(file)["op_count"]
    assert sum(len(entry["examples"]) for entry in entries) == count
    run = {(entry["name"], example["name"]) for entry, example in EXAMPLES}
    assert all((entry["name"], example["name"]) in run for entry in entries for example in entry["examples"])


@pytest.mark.parametrize("file", contract.FILES)
def test_the_contract_is_the_shared_one(file, repository):
    original = repository.parent / "shared" / "spec" / file
    if not original.is_file():
        pytest.skip(f"{original} is not here")
    assert filecmp.cmp(original, contract.SPEC / file, shallow=False)


@each("entry, example", EXAMPLES, names_of)
def test_example(entry, example):
    inputs = contract.arguments(entry, example)
    expected = contract.results(entry, example)
    first = next(iter(expected.values()), None)
    op = contract.build(entry, example["params"], None if first is None else DType.of(first.dtype))
    chips = legal_chips(op, inputs, expected)
    if "only_chip" in example:
        chips = [chip for chip in chips if chip.value == example["only_chip"]]
    assert chips, "the example is not legal on any chip"
    inferred = op.infer(*contract.types_of(inputs))
    required = sum(not operand.optional for operand in op.outputs)
    assert required <= len(inferred) <= len(op.outputs) or op.outputs[-1].variadic
    for chip in chips:
        found = op.evaluate(*inputs, chip=chip)
        assert len(found) == len(inferred)
        for (name, wanted), result, type_ in zip(expected.items(), found, inferred, strict=False):
            assert_same(result, wanted, example.get("tolerance"), f"{name} on {chip.value}")
            assert type_.dtype is DType.of(wanted.dtype)
            assert len(type_.shape) == wanted.ndim
            for extent, actual in zip(type_.shape, wanted.shape, strict=True):
                assert isinstance(extent, str) or extent == actual


@each("entry, example", SHAPE_EXAMPLES, names_of)
def test_shape_example(entry, example):
    op = contract.build(entry, example.get("params", {}))
    types = [TensorType(F32, tuple(example["in"]))]
    if "shape_info" in example:  # the shape is a tensor, so only execution can detect the error
        data = np.zeros(example["in"], np.float32)
        assert op.evaluate(data, np.array(example["shape_info"], np.int32))[0].shape == tuple(example["out"])
    else:
        assert op.infer(*types)[0].shape == tuple(example["out"])


def legal_chips(op: Op, inputs: list[Array | None], expected: dict[str, Array]) -> list[Chip]:
    """Chips whose dtype table accepts an example."""
    must_be_constant = {
        name for support in op.dtypes.values() for case in support.cases for name in case.requires_coeff
    }
    coeffs = [operand.name in must_be_constant for operand in op.inputs]
    types = contract.types_of(inputs)
    out = [TensorType(DType.of(item.dtype), item.shape) for item in expected.values()]
    return [chip for chip in Chip if check(op, chip, types, out, coeffs).status is not Status.ILLEGAL]


def assert_same(found: Array, wanted: Array, tolerance: dict[str, float] | None, where: str) -> None:
    """Compare the bits, or use the tolerance that the example states."""
    assert found.dtype == wanted.dtype, where
    assert found.shape == wanted.shape, where
    if tolerance is not None:
        np.testing.assert_allclose(found, wanted, rtol=tolerance["rtol"], atol=tolerance["atol"], err_msg=where)
        return
    np.testing.assert_array_equal(found, wanted, err_msg=where)
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted), err_msg=f"sign of zero in {where}")
