"""Tensors without elements: the native engine gives the bytes of the references, for every operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert as tc
from tests.support.each import each
from tests.support.native_cases import KINDS
from tests.support.native_cases import make as make_native
from tests.support.native_cases.random_graphs import evaluate, needs_extension
from tests.support.operators.op_cases import Use, all_uses, equal_bits, type_of
from tests.support.paired import paired
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import OpKind
from tpuconvert.schema.errors import ShapeError
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.types import Array, Chip, TensorType

pytestmark = needs_extension

Operands = list[Array | None]


def without_elements(arrays: Sequence[Array | None]) -> Iterator[Operands]:
    """Every operand with each axis set to 0, alone and together with the axes of the others that are as long."""
    present = [a for a in arrays if a is not None]
    axes = {(axis, a.shape[axis]) for a in present for axis in range(a.ndim)}
    for axis, extent in sorted(axes):
        for count in range(-1, len(present)):  # all of that extent, or one of them
            chosen = [
                a for i, a in enumerate(present) if count in (-1, i) and a.ndim > axis and a.shape[axis] == extent
            ]
            if chosen and (count < 0 or len(present) > 1):
                cut = {id(a): a.take([], axis) for a in chosen}
                yield [None if a is None else cut.get(id(a), a) for a in arrays]


def uses() -> dict[str, list[Use]]:
    """Uses of each operator that the engine may execute, by operator name."""
    found: dict[str, list[Use]] = {}
    for use in all_uses():
        if use.op.kind is not OpKind.CUSTOM and use.inputs:
            found.setdefault(use.op.name, []).append(use)
    return found


USES = uses()

NO_DEFINED_RESULT = {
    *("conv", "conv3d", "conv_v2", "conv3d_v2"),  # no input channels
    *("deconv", "deconv_v2", "deconv3d_v2"),  # no input channels, or no pixels
    *("index_select", "interpolate", "pool", "gather_group_quantized"),  # elements that are gathered from an empty axis
    *("lstm", "gru", "rnn", "lstm_int", "gru_int", "rnn_int"),  # lengths that exceed the number of steps
    *("proposals", "roi_align", "roi_max_pool", "roi_position_pool"),  # regions of an empty image
}
"""Operators whose references fail where a result with elements would be made of an operand without. The engine fails as
they do."""


@each("name", USES)
def test_operator(name: str) -> None:
    for use in USES[name]:
        for arrays in without_elements(use.inputs):
            graph = Graph(name)
            values = [None if a is None else graph.input(f"x{i}", type_of(a)) for i, a in enumerate(arrays)]
            try:
                results = graph.add_all(use.op, *values)
            except ShapeError:
                continue  # some operators need elements
            if any("?" in str(extent) for value in results for extent in value.shape):
                continue  # such graphs run on the references
            for value in results:
                graph.output(value)
            compare(graph, [a for a in arrays if a is not None], Chip.BM1686, f"{use} with {values}")


@pytest.mark.parametrize("kind", sampled(KINDS))
def test_graphs_of_several_operators(kind: str) -> None:
    for seed in range(6):
        case = make_native(kind, seed)
        for feeds in without_elements(case.feeds):
            arrays = [a for a in feeds if a is not None]
            graph = rebuilt(
                case.graph, [TensorType(v.dtype, a.shape) for v, a in zip(case.graph.inputs, arrays, strict=True)]
            )
            if graph is not None:
                compare(graph, arrays, case.chip, f"{case}, operands {[a.shape for a in arrays]}")


def rebuilt(graph: Graph, types: list[TensorType]) -> Graph | None:
    """The same nodes on inputs of other shapes; None where an operator does not take them."""
    other = Graph(graph.name)
    known: dict[Value, Value] = {v: other.input(v.name, t) for v, t in zip(graph.inputs, types, strict=True)}
    known |= {v: other.constant(v.array, v.name) for v in graph.values if v.is_constant}
    for node in graph.sorted_nodes():
        try:
            results = other.add_all(node.op, *(None if v is None else known[v] for v in node.inputs))
        except ShapeError:
            return None
        known |= dict(zip(node.outputs, results, strict=True))
    for value in graph.outputs:
        other.output(known[value])
    return other


def compare(graph: Graph, feeds: list[Array], chip: Chip, what: str) -> None:
    """Run the references and every instruction set, and compare bytes."""
    arrays = dict(zip(graph.inputs, feeds, strict=True))
    arrays |= {value: value.array for value in graph.values if value.is_constant}
    for node in graph.sorted_nodes():
        given = [None if value is None else arrays[value] for value in node.inputs]
        try:
            results = evaluate(chip)(node, given)
        except Exception as error:
            if node.op.name not in NO_DEFINED_RESULT:
                pytest.fail(f"{what}: {error!r}")
            with pytest.raises(type(error)):
                NativePlan(graph, chip.name, available_isas()[-1], 1).run(feeds, evaluate(chip))
            return
        for value, array in zip(node.outputs, results, strict=True):
            assert array.shape == value.shape, f"{what}: the reference gives {array.shape} for {value}"
        arrays |= dict(zip(node.outputs, results, strict=True))
    for isa in available_isas():
        for is_observed in (False, True):
            plan = NativePlan(graph, chip.name, isa, 1, is_observed=is_observed)
            for value, found in zip(graph.outputs, plan.run(feeds, evaluate(chip)), strict=True):
                wanted = arrays[value]
                assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), f"{what} on {isa}"
                assert equal_bits(found, wanted), f"{what} on {isa}: {found} instead of {wanted}"


def open_batch_model(path: Path) -> Path:
    """A pad that is not folded, convolution, pooling, resize, flatten and a matmul, with a dynamic batch."""
    rng = np.random.default_rng(1)
    arrays = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "v": rng.normal(size=(4, 5)).astype(np.float32),
    }
    node = helper.make_node
    nodes = [
        node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
        node("Conv", ["padded", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Resize", ["r", "", "scales"], ["big"], mode="nearest", coordinate_transformation_mode="asymmetric"),
        node("MaxPool", ["big"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Add", ["p", "r"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5]),
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "open", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("chip", "quantize", "backend"),
    paired(
        [("bm1682", None), ("bm1684", None), ("bm1684", "int8"), ("bm1686", None), ("bm1686", "int8")],
        ["native", "reference"],
    ),
)
def test_an_open_batch_may_be_0(chip: str, quantize: str | None, backend: Any, tmp_path: Path) -> None:
    samples = np.random.default_rng(2).normal(size=(4, 1, 3, 6, 6)).astype(np.float32)
    options: dict[str, Any] = {"quantize": quantize, "calibration": list(samples)} if quantize else {}
    model = tc.convert(open_batch_model(tmp_path / "open.onnx"), chip=chip, **group_options(**options))
    with tc.Session(model, backend=backend) as session:
        none = session.run({"x": np.empty((0, 3, 6, 6), np.float32)})["y"]
        assert (none.shape, none.dtype) == ((0, 5), np.float32)
        two = session.run({"x": samples[:2, 0]})["y"]
        one = session.run({"x": samples[1]})["y"]
    assert two.shape == (2, 5)
    np.testing.assert_allclose(two[1:], one, rtol=1e-5)  # float32 sums over blocks of another size
