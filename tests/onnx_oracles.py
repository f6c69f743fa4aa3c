"""Expected results of an ONNX model: by onnxruntime, or by the reference evaluator where onnxruntime has no kernel."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx_models import ours

from tpuconvert.schema.types import Array

NEWEST_OPSET = 26
"""The newest that the oldest onnxruntime wanted here reads without a warning."""


def expected(proto: onnx.ModelProto, feeds: Mapping[str, Array], *, differs: str = "") -> list[Array]:
    """Results in the order of the model's outputs; with a reason not to ask onnxruntime those of the evaluator."""
    names = [value.name for value in proto.graph.output]
    results = None if differs else _by_onnxruntime(proto, feeds, names)
    if results is None:
        results = ReferenceEvaluator(proto).run(names, dict(feeds))
    return [np.asarray(item) for item in results]


def _by_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array] | None:
    """None where the engine does not take the model, for which its errors have no common class."""
    import onnxruntime as engine

    settings = engine.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = engine.GraphOptimizationLevel.ORT_DISABLE_ALL
    untyped = onnx.ModelProto()
    untyped.CopyFrom(proto)
    for value in untyped.graph.output:
        value.ClearField("type")  # it infers them
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
    """Our results, their types and shapes, as those of the other engine; the tolerance is that of other sums."""
    found = ours(proto, feeds, folder)
    for value, want in zip(proto.graph.output, expected(proto, feeds, differs=differs), strict=True):
        got = found[value.name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), value.name
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=atol, rtol=rtol, err_msg=value.name)
