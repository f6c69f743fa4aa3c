"""Statistics at the linear operators: their values, and their memory beside the samples."""

import tracemalloc

import numpy as np
import pytest

from tpuconvert.optimizer.quantize.refinement.operand_statistics import OperandSamples
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.types import U8, Chip, TensorType

ZERO_POINT, POSITIONS = 100, 30


@pytest.fixture
def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    return [{"x": rng.integers(0, 256, (1, 4, 96, 96)).astype(np.uint8)} for _ in range(40)]


def statistics_of(samples: list[dict[str, np.ndarray]]) -> OperandSamples:
    graph = Graph("net")
    x = graph.input("x", TensorType(U8, (1, 4, 96, 96)))
    weight = graph.constant(np.ones((2, 4, 3, 3), np.int8), "w")
    bias = graph.constant(np.zeros((1, 2, 1, 1), np.int32), "b")
    op = ConvV2(pad_h_t=1, pad_h_b=1, pad_w_l=1, pad_w_r=1, izp_val=ZERO_POINT, has_bias=True)
    graph.output(graph.add(op, x, weight, bias, name="y"))
    return OperandSamples(graph, Chip.BM1686, samples, [graph.nodes[0]])


def test_inputs_of_an_operand_with_a_zero_point(samples: list[dict[str, np.ndarray]]) -> None:
    chosen = np.linspace(0, 96 * 96 - 1, POSITIONS).astype(int)
    windows = []
    for sample in samples:
        padded = np.pad(sample["x"][0].astype(int) - ZERO_POINT, ((0, 0), (1, 1), (1, 1)))
        windows += [padded[:, i // 96 : i // 96 + 3, i % 96 : i % 96 + 3].reshape(-1) for i in chosen]
    sums = statistics_of(samples).inputs(0, POSITIONS)
    assert sums.count == len(windows)
    assert np.array_equal(sums.totals[0], np.sum(windows, axis=0))
    assert np.array_equal(sums.products[0], np.transpose(windows) @ np.array(windows))


def test_zero_points_take_no_copy_of_all_samples(samples: list[dict[str, np.ndarray]]) -> None:
    statistics = statistics_of(samples)
    statistics.images(0)
    tracemalloc.start()
    statistics.inputs(0, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(sample["x"].nbytes for sample in samples) / 2
