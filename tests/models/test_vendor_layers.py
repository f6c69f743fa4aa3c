"""Integer layers that the vendor's toolchain computed, bit for bit.

The files hold operands, results and a program of our operators for each layer. One test takes one kind of layer on
one chip, and every case that is called exact must come out equal. What is not is explained by name: ``NOT_IN_THE_SET``
is reproduced by another use of the same operator, ``INFORMATIVE`` has no program.
"""

import json
from functools import cache

import numpy as np
import pytest

from tests.support.native_cases.comparison import evaluator
from tests.support.operators import contract
from tests.support.sampled import sampled
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import all_ops
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip, DType, TensorType

KINDS = [
    (Chip.BM1684, "add_const"),
    (Chip.BM1684, "add_scaled"),
    (Chip.BM1684, "avg_pool"),
    (Chip.BM1684, "concat"),
    (Chip.BM1684, "conv_shift"),
    (Chip.BM1684, "deconv_shift"),
    (Chip.BM1684, "dequantize"),
    (Chip.BM1684, "fc_shift"),
    (Chip.BM1684, "leaky_relu"),
    (Chip.BM1684, "lut"),
    (Chip.BM1684, "max"),
    (Chip.BM1684, "max_pool"),
    (Chip.BM1684, "min"),
    (Chip.BM1684, "mul_scaled"),
    (Chip.BM1684, "prelu"),
    (Chip.BM1684, "quantize"),
    (Chip.BM1684, "relu"),
    (Chip.BM1684, "rescale"),
    (Chip.BM1684, "scale_floor"),
    (Chip.BM1684, "sub_scaled"),
    (Chip.BM1684, "upsample"),
    (Chip.BM1686, "add_const"),
    (Chip.BM1686, "add_scaled"),
    (Chip.BM1686, "add_tflite"),
    (Chip.BM1686, "avg_pool"),
    (Chip.BM1686, "avg_pool_float_scale"),
    (Chip.BM1686, "concat"),
    (Chip.BM1686, "conv3d_requant"),
    (Chip.BM1686, "conv_requant"),
    (Chip.BM1686, "conv_requant_tflite"),
    (Chip.BM1686, "deconv_requant"),
    (Chip.BM1686, "dequantize"),
    (Chip.BM1686, "fc_requant"),
    (Chip.BM1686, "fc_requant_tflite"),
    (Chip.BM1686, "leaky_relu"),
    (Chip.BM1686, "lut"),
    (Chip.BM1686, "matmul_requant"),
    (Chip.BM1686, "max"),
    (Chip.BM1686, "max_pool"),
    (Chip.BM1686, "min"),
    (Chip.BM1686, "mul_scaled"),
    (Chip.BM1686, "prelu"),
    (Chip.BM1686, "quantize"),
    (Chip.BM1686, "relu"),
    (Chip.BM1686, "rescale"),
    (Chip.BM1686, "rescale_asym"),
    (Chip.BM1686, "softmax"),
    (Chip.BM1686, "sub_scaled"),
    (Chip.BM1686, "upsample"),
]
CASES = [pytest.param(*pair, id=f"{pair[0].value}-{pair[1]}") for pair in KINDS]

NOT_IN_THE_SET = "exact with softmax_int result dtype differing from its input"
"""INT8 in, UINT8 out: softmax_int gives the type of its input. It reads only differences from the maximum, so that the
same codes as UINT8, 128 higher, give the same integers."""

INFORMATIVE = {
    "avg_pool_clipped": "windows clipped at the edge, without counting padding: in all cases but one the vendor's "
    "interpreter and its simulator of the chip disagree, so that there is no integer to agree with",
}
"""Kinds of cases without a program, and why."""

EXPECTATIONS = {"exact", "exact with requant_int32.round_mode", NOT_IN_THE_SET, "informative"}


@cache
def cases(folder):
    with (folder / "cases.json").open(encoding="utf-8") as stream:
        return json.load(stream)["cases"]


def test_every_case_is_exact_or_explained(data_root):
    """Exceptions are listed by case name, so that an unexpected difference fails."""
    found = cases(data_root / "vendor")
    assert {case["expect"] for case in found} == EXPECTATIONS
    without_program = [case for case in found if case["program"] is None]
    assert without_program == [case for case in found if case["expect"] == "informative"]
    for case in without_program:
        assert case["kind"] in INFORMATIVE, case["id"]
    differing = {case["kind"] for case in found if case["expect"] == NOT_IN_THE_SET}
    assert differing == {"softmax"}


def test_every_kind_of_exact_case_is_tested(data_root):
    exact = [case for case in cases(data_root / "vendor") if case["expect"] != "informative"]
    assert {(Chip(case["project_chip"]), case["kind"]) for case in exact} == set(KINDS)


@pytest.mark.parametrize(("chip", "kind"), CASES)
def test_same_integers(chip, kind, data_root):
    folder = data_root / "vendor"
    checked = 0
    for case in cases(folder):
        if (case["kind"], case["project_chip"]) != (kind, chip.value) or case["expect"] == "informative":
            continue
        with np.load(folder / case["file"]) as stored:
            values = dict(stored)
        expected = values.pop("y")
        if case["expect"] == NOT_IN_THE_SET:
            assert (values["x"].dtype, expected.dtype) == (np.int8, np.uint8), case["id"]
            values["x"] = (values["x"].astype(np.int16) + 128).astype(np.uint8)
        found = run(case["program"], values, chip)
        assert found.dtype == expected.dtype, case["id"]
        np.testing.assert_array_equal(found, expected, err_msg=str(case["id"]))
        checked += 1
    assert checked


def run(program: list[contract.Entry], values: dict[str, Array], chip: Chip) -> Array:
    """Execute the steps of a program; return the result of the last one."""
    result = None
    for step in program:
        definition = all_ops()[step["op"]]
        named = step["inputs"]
        if isinstance(named, list):
            inputs = [values[name] for name in named]
        else:
            inputs = [values[named[o.name]] if o.name in named else None for o in definition.inputs]
        parameters = parameters_of(step, values, inputs)
        if "out_dtype" in contract.names_of(definition):
            parameters["out_dtype"] = DType(step["dtype"])
        shaped = [
            array.reshape(1, -1, *(1,) * (operand.ranks[0] - 2))
            if is_bias(operand.name, operand.ranks, array)
            else array
            for operand, array in zip(list(definition.inputs) * len(inputs), inputs, strict=False)
        ]
        result = definition(**parameters).evaluate(*shaped, chip=chip)[0]
        assert result.dtype == DType(step["dtype"]).numpy, step
        values[step["output"]] = result
    assert result is not None
    return result


def is_bias(name: str, ranks: tuple[int, ...], array: Array | None) -> bool:
    """Return True if a stored bias [oc] must be reshaped to [1, oc, 1, ...]."""
    return array is not None and name == "tensor_bias" and ranks[0] > 1 and array.ndim == 1


def parameters_of(step: contract.Entry, values: dict[str, Array], inputs: list[Array | None]) -> dict[str, object]:
    """Parameters of a step as arguments of the operator's definition."""
    definition = all_ops()[step["op"]]
    entry = {item["name"]: item for item in contract.document()["ops"]}[step["op"]]
    parameters: dict[str, object] = {}
    for parameter in entry["params"]:
        if parameter["name"] not in step["params"]:
            continue
        value = step["params"][parameter["name"]]
        if isinstance(value, str) and value.startswith("@"):
            value = values[value[1:]].tolist()
        if parameter["type"] == "Scalar":
            assert inputs[0] is not None
            dtype = step["params"].get(f"{parameter['name']}_dtype", DType.of(inputs[0].dtype).value)
            value = {"dtype": dtype, "value": value}
        parameters[parameter["name"]] = contract.field_value(definition, parameter, value)
    return parameters


def graph_of(program: list[contract.Entry], values: dict[str, Array]) -> tuple[Graph, list[Array]]:
    """Return the steps of a program as a graph, with 8-bit activations as inputs and other operands as constants."""
    graph, made, feeds = Graph(), {}, []
    arrays = dict(values)
    for step in program:
        definition = all_ops()[step["op"]]
        named = step["inputs"]
        names = named if isinstance(named, list) else [named.get(o.name) for o in definition.inputs]
        inputs = [None if name is None else arrays.get(name) for name in names]
        parameters = parameters_of(step, values, inputs)
        if "out_dtype" in contract.names_of(definition):
            parameters["out_dtype"] = DType(step["dtype"])
        operands = []
        for number, (operand, name) in enumerate(zip(list(definition.inputs) * len(names), names, strict=False)):
            if name is None or name in made:
                operands.append(None if name is None else made[name])
                continue
            array = values[name]
            if is_bias(operand.name, operand.ranks, array):
                array = array.reshape(1, -1, *(1,) * (operand.ranks[0] - 2))
            if number == 0 or not operand.coeff or step["op"] in ("add", "sub", "mul", "max", "min"):
                made[name] = graph.input(name, TensorType(DType.of(array.dtype), array.shape))
                feeds.append(array)
                operands.append(made[name])
            else:
                operands.append(graph.constant(array))
        result = made[step["output"]] = graph.add_all(definition(**parameters), *operands)[0]
        arrays[step["output"]] = np.empty(result.type.static_shape, result.dtype.numpy)  # its type is needed
    graph.output(made[program[-1]["output"]])
    return graph, feeds


@pytest.mark.skipif(extension() is None, reason="the native engine was not built")
@pytest.mark.parametrize(("chip", "kind"), sampled(CASES))
def test_native_engine_has_the_same_integers(chip, kind, data_root):
    """Every program is computed by kernels, none by NumPy references."""
    folder = data_root / "vendor"
    checked = 0
    for case in cases(folder):
        skipped = ("informative", NOT_IN_THE_SET)
        if (case["kind"], case["project_chip"]) != (kind, chip.value) or case["expect"] in skipped:
            continue
        with np.load(folder / case["file"]) as stored:
            values = dict(stored)
        expected = values.pop("y")
        graph, feeds = graph_of(case["program"], values)
        plan = NativePlan(graph, chip.value, available_isas()[-1], 1)
        assert not plan.reference_nodes, (case["id"], plan.reference_reasons)
        (found,) = plan.run(feeds, evaluator(chip))
        np.testing.assert_array_equal(found, expected, err_msg=str(case["id"]))
        checked += 1
    assert checked or kind == "softmax"
