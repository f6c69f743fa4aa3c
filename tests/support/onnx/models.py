"""Small ONNX models for tests, run by tpuconvert and by the reference evaluator of the onnx package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.support.onnx.reference import evaluate
from tpuconvert.frontends.onnx import load
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array


def ramp(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> Array:
    """Seeded float32 numbers from a range."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    *,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model with static inputs like the given arrays and outputs of any type."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def one(op: str, *inputs: str, outputs: Sequence[str] = ("y",), **attributes: Any) -> NodeProto:
    """A node with the name of its operator."""
    return helper.make_node(op, list(inputs), list(outputs), name=f"the_{op}", **attributes)


def save_model(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """Write a model to a file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def graph_of(proto: onnx.ModelProto, folder: Path, **options: Any) -> Graph:
    """Import a model."""
    graph = load(save_model(proto, folder), **options)
    graph.validate()
    return graph


def ops(graph: Graph) -> list[str]:
    """Operator names in order."""
    return [node.op.name for node in graph.nodes]


def ours(proto: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path, **options: Any) -> dict[str, Array]:
    """Import and run a model."""
    with Session(
        graph_of(proto, folder, **options), threads=1
    ) as session:  # no threads: there are thousands of small models
        return session.run(feeds)


def assert_converts(
    proto: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path, atol: float = 2e-6, rtol: float = 2e-5
) -> None:
    """Check that results, types and shapes equal the results of the reference evaluator.

    The tolerance covers float32 sums in a different order.
    """
    names = [value.name for value in proto.graph.output]
    expected = evaluate(proto, names, feeds)
    found = ours(proto, feeds, folder)
    for name, want in zip(names, expected, strict=True):
        want = np.asarray(want)
        assert found[name].shape == want.shape, name
        assert found[name].dtype == want.dtype, name
        np.testing.assert_allclose(found[name].astype(float), want.astype(float), atol=atol, rtol=rtol, err_msg=name)
