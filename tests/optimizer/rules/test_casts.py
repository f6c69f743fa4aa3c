"""Merging and removal of casts."""

import numpy as np
import pytest

from tests.support.rules.graphs import ops
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.rules.casts import is_lossless_cast
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.copy import Copy
from tpuconvert.schema.types import F16, F32, I8, I16, I32, U8, DType, TensorType


def cast_twice(first: DType, second: DType, source: DType) -> Graph:
    graph = Graph("casts")
    x = graph.add(Copy(), graph.input("x", TensorType(source, (256,))))
    graph.output(graph.add(Cast(second), graph.add(Cast(first), x)))
    return graph


def outputs(graph: Graph) -> np.ndarray:
    port = graph.input_ports[0]
    data = np.linspace(-300, 300, 256) if port.dtype.startswith("f") else np.arange(256)
    (result,) = Session(graph, backend="reference").run({"x": data.astype(port.dtype)}).values()
    return result


@pytest.mark.parametrize(
    ("source", "first", "second", "expected"),
    [
        (I8, I32, F32, ["cast"]),
        (U8, F32, U8, []),
        (I8, I16, I8, []),
        (I16, F16, I16, ["cast", "cast"]),
        (F32, I32, F32, ["cast", "cast"]),
        (I32, F32, I32, ["cast", "cast"]),
        (U8, I8, I32, ["cast", "cast"]),
        (F16, F32, F16, []),
    ],
)
def test_pairs(source, first, second, expected):
    graph = cast_twice(first, second, source)
    want = outputs(graph)
    trace = optimize(graph)
    assert ops(graph) == expected
    np.testing.assert_array_equal(outputs(graph), want)
    if len(expected) == 2:
        assert {reason for rule, reason in trace.skip_counts if rule == "merge_casts"} == {
            "the first cast rounds or saturates"
        }


@pytest.mark.parametrize("narrow", [I8, U8, I16])
@pytest.mark.parametrize("wide", [I8, U8, I16, I32, F16, F32])
def test_lossless_casts_match_enumerated_values(narrow, wide):
    numbers = np.arange(narrow.min, narrow.max + 1)
    with np.errstate(all="ignore"):
        kept = np.array_equal(numbers.astype(wide.numpy).astype(np.int64), numbers)
    assert is_lossless_cast(narrow, wide) == kept
