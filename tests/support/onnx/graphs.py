"""Graphs with subgraphs and data-dependent extents for tests, and their comparison with onnxruntime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import tpuconvert as tc
from tests.support.onnx.models import save_model
from tpuconvert.conversion.options.options import group_options
from tpuconvert.runtime.native.builder import loader
from tpuconvert.schema.types import Array

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Feeds = Mapping[str, Array]
BACKENDS = ("reference", *(("native",) if loader.extension() is not None else ()))


def info(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(nodes: Sequence[NodeProto], *results: str, kind: int = FLOAT) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [info(result, kind) for result in results])


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def loop_body(nodes: Sequence[NodeProto], states: Sequence[str], results: Sequence[str]) -> onnx.GraphProto:
    """A body with inputs i, going and states, and outputs go and results."""
    inputs = [info("i", INT64, []), info("going", BOOL, []), *map(info, states)]
    return helper.make_graph(list(nodes), "body", inputs, [info("go", BOOL), *map(info, results)])


def with_outputs(proto: onnx.ModelProto, **outputs: tuple[int, list[int | str]]) -> onnx.ModelProto:
    """Declare the types of the outputs, which onnxruntime requires."""
    del proto.graph.output[:]
    proto.graph.output.extend(info(name, kind, shape) for name, (kind, shape) in outputs.items())
    return proto


def assert_as_onnxruntime(proto: onnx.ModelProto, samples: Sequence[Feeds], folder: Path, **options: Any) -> tc.Model:
    """Compare all outputs, with their shapes and types. The tolerance covers float32 sums in a different order."""
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")
    settings = runtime.SessionOptions()
    settings.log_severity_level = 4
    oracle = runtime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    converted = tc.convert(save_model(proto, folder), **group_options(**options))
    converted.save(folder / "model.tpum")
    names = [value.name for value in proto.graph.output]
    for backend in BACKENDS:
        with tc.Session(folder / "model.tpum", backend=backend, threads=1) as session:
            for feeds in samples:
                found = session.run(feeds)
                for name, expected in zip(names, oracle.run(names, dict(feeds)), strict=True):
                    assert (found[name].shape, found[name].dtype) == (expected.shape, expected.dtype), name
                    np.testing.assert_allclose(found[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)
    return tc.load(folder / "model.tpum")
