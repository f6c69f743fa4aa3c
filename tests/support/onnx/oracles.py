"""Expected results of an ONNX model from onnxruntime, or from the reference evaluator if onnxruntime has no kernel."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from tests.support.onnx.models import ours
from tests.support.onnx.reference import evaluate
from tpuconvert.schema.types import Array

NEWEST_OPSET = 26
"""The newest opset that the oldest supported onnxruntime reads without a warning."""


def expected_results(proto: onnx.ModelProto, feeds: Mapping[str, Array], *, differs: str = "") -> list[Array]:
    """Results in the order of the model's outputs. With a reason in ``differs``, the evaluator is used."""
    names = [value.name for value in proto.graph.output]
    results = None if differs else _by_onnxruntime(proto, feeds, names)
    if results is None:
        results = evaluate(proto, names, feeds)
    return [np.asarray(item) for item in results]


def _by_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array] | None:
    """Results of onnxruntime, or None if it rejects the model. Its exceptions have no common base class."""
    import onnxruntime as engine

    settings = engine.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = engine.GraphOptimizationLevel.ORT_DISABLE_ALL
    untyped = onnx.ModelProto()
    untyped.CopyFrom(proto)
    for value in untyped.graph.output:
        value.ClearField("type")  # onnxruntime infers them
    try:
        session = engine.InferenceSession(untyped.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        found: list[Array] = session.run(list(names), dict(feeds))
    except Exception:  # several classes of its extension module, and TypeError where it lacks a data type
        return None
    return found


def assert_same(
    proto: onnx.ModelProto,
    feeds: Mapping[str, Array],
    folder: Path,
    *,
    atol: float = 2e-6,
    rtol: float = 2e-5,
    differs: str = "",
) -> None:
    """Compare results, types and shapes with the other engine; the tolerance covers other orders of summation."""
    found = ours(proto, feeds, folder)
    for value, want in zip(proto.graph.output, expected_results(proto, feeds, differs=differs), strict=True):
        got = found[value.name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), value.name
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=atol, rtol=rtol, err_msg=value.name)
