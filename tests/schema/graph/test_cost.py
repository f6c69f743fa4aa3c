"""Multiply-accumulate steps and bytes, against numbers computed by hand."""

import numpy as np
import pytest

from tpuconvert.schema.definition.hardware import hardware_of
from tpuconvert.schema.definition.op import Op, all_ops
from tpuconvert.schema.graph import cost
from tpuconvert.schema.graph.cost import bytes_moved, macs
from tpuconvert.schema.graph.graph import Graph, Node
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.ops.attention import Attention
from tpuconvert.schema.ops.batch_matmul import BatchMatmul
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.convolution.conv3d import Conv3d
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.convolution.deconv import Deconv
from tpuconvert.schema.ops.convolution.deconv_v2 import DeconvV2
from tpuconvert.schema.ops.matmul.fc_int import FcInt
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul.matrix_mul_v2 import MatrixMulV2
from tpuconvert.schema.ops.pool import Pool, PoolType
from tpuconvert.schema.ops.pool_int import PoolInt
from tpuconvert.schema.ops.recurrent.recurrent_cell import GruCell, LstmCell
from tpuconvert.schema.ops.reduce import Reduce
from tpuconvert.schema.ops.shape_change import Reshape
from tpuconvert.schema.types import F32, I8, Chip, Dim, DType, TensorType


def node(op: Op, *shapes: tuple[Dim, ...], dtype: DType = F32) -> Node:
    graph = Graph()
    operands = [graph.input(f"x{index}", TensorType(dtype, shape)) for index, shape in enumerate(shapes)]
    graph.add_all(op, *operands)
    (made,) = graph.nodes
    return made


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        # 64 x 112 x 112 results, each a sum of 3 x 7 x 7: the first convolution of ResNet50
        (
            node(
                Conv(pad_h_t=3, pad_h_b=3, pad_w_l=3, pad_w_r=3, stride_h=2, stride_w=2),
                (1, 3, 224, 224),
                (64, 3, 7, 7),
            ),
            118_013_952,
        ),
        # depthwise: 32 x 5 x 5 results of 3 x 3
        (node(Conv(groups=32), (1, 32, 7, 7), (32, 1, 3, 3)), 7_200),
        # 2 images, 8 x 4 x 4 results, 6 channels in 2 groups: 3 x 3 x 3
        (node(ConvV2(groups=2), (2, 6, 6, 6), (8, 3, 3, 3), dtype=I8), 6_912),
        # every one of 4 x 5 x 5 elements goes to 6 channels x 2 x 2 places
        (node(Deconv(stride_h=2, stride_w=2), (1, 4, 5, 5), (4, 6, 2, 2)), 2_400),
        (node(DeconvV2(groups=2), (1, 4, 5, 5), (4, 3, 2, 2), dtype=I8), 1_200),
        # 2 x 3 x 3 x 3 results of 1 x 2 x 2 x 2
        (node(Conv3d(), (1, 1, 4, 4, 4), (2, 1, 2, 2, 2)), 432),
        (node(MatrixMul(), (3, 5), (5, 7)), 105),
        (node(MatrixMulV2(is_left_trans=True), (2, 5, 3), (2, 5, 7), dtype=I8), 210),
        (node(FcInt(weight_trans=True), (2, 3, 5), (7, 5), dtype=I8), 210),
        (node(BatchMatmul(right_transpose=True), (2, 4, 3, 5), (1, 4, 7, 5)), 840),
        # 4 queries x 6 keys x (5 for the score + 7 for the value)
        (node(Attention(), (1, 4, 5), (1, 6, 5), (1, 6, 7)), 288),
        # batch 2, 3 inputs and 4 units: 2 x (3 x 16 + 4 x 16); the batch may be as large as the units
        (node(LstmCell(), (2, 3), (2, 4), (2, 4), (3, 16), (4, 16)), 224),
        (node(GruCell(), (4, 3), (4, 4), (3, 12), (4, 12)), 336),
        # 3 x 2 x 2 windows of 2 x 2
        (node(Pool(stride_h=2, stride_w=2, kernel_h=2, kernel_w=2), (1, 3, 4, 4)), 48),
        (
            node(Pool(stride_h=1, stride_w=1, pooling_type=PoolType.AVE, is_global_pooling=True), (1, 8, 7, 7)),
            392,
        ),
        (
            node(PoolInt(stride_h=1, stride_w=1, kernel_h=3, kernel_w=2, is_avg_pooling=False), (1, 2, 4, 4), dtype=I8),
            72,
        ),
        (node(Reduce((2, 3)), (1, 8, 7, 7)), 392),
        (node(Active(ActiveType.ACTIVE_RELU), (1, 8, 7, 7)), 0),
    ],
    ids=lambda value: value.op.name if isinstance(value, Node) else "",
)
def test_steps(made: Node, steps: int) -> None:
    assert macs(made) == steps


def test_bytes_are_operands_constants_and_results() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(I8, (2, 3)))
    graph.add(MatrixMulV2(), x, graph.constant(np.zeros((3, 5), np.int8)))
    (made,) = graph.nodes
    assert bytes_moved(made) == 2 * 3 + 3 * 5 + 2 * 5 * 4


def test_an_operand_that_is_read_twice_counts_once() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (4, 4)))
    graph.add(MatrixMul(), x, x)
    (made,) = graph.nodes
    assert bytes_moved(made) == 128


def test_unknown_extents_cost_none() -> None:
    made = node(BatchMatmul(), ("N", 3, 5), (5, 7))
    assert (macs(made), bytes_moved(made)) == (None, None)


def test_counts_macs_of_linear_and_window_operators() -> None:
    """An operator that is named after products, cells or windows would otherwise cost nothing."""
    words = ("conv", "matrix_mul", "matmul", "fc_", "attention", "_cell", "pool")
    by_data = ("roi_", "host_max_unpool")  # the size of a window is in an operand; elements are only moved
    named = [
        kind for name, kind in all_ops().items() if any(word in name for word in words) and not name.startswith(by_data)
    ]
    assert len(named) > 12
    assert [kind.name for kind in named if kind.count_macs is Op.count_macs] == []


def test_values_inside_fused_nodes_do_not_count() -> None:
    graph = Graph()
    x = graph.input("x", TensorType(F32, (4, 4)))
    y = graph.add(Active(ActiveType.ACTIVE_RELU), x)
    z = graph.add(Active(ActiveType.ACTIVE_RELU), y)
    assert bytes_moved(*graph.nodes) == 2 * 64
    assert bytes_moved(*graph.nodes, leaving=[y]) == 3 * 64
    graph.add(Active(ActiveType.ACTIVE_RELU), y)
    assert bytes_moved(*graph.nodes[:2]) == 3 * 64
    assert z.users == []


def test_roofline_is_longer_of_compute_and_transfer() -> None:
    made = node(ConvV2(), (1, 64, 8, 8), (32, 64, 1, 1), dtype=I8)
    hardware = hardware_of(Chip.BM1686)
    assert cost.arithmetic_type(made) is I8
    assert cost.computing_seconds(made, hardware) == 32 * 64 * 64 / 3.6e12
    assert cost.computing_seconds(made, hardware, 7) == 7 / 3.6e12
    assert cost.bytes_alone(made) == 64 * 64 + 32 * 64 + 4 * 32 * 64
    assert cost.roofline_seconds(2.0, 32_000_000_000, hardware) == 2.0
    assert cost.roofline_seconds(0.5, 32_000_000_000, hardware) == 1.0


def test_a_change_of_shape_moves_nothing() -> None:
    made = node(Reshape((4, 2)), (2, 4))
    assert cost.bytes_moved(made) == 64
    assert cost.bytes_alone(made) == 0
