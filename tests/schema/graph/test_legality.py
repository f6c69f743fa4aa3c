"""Legality of operators per chip, and the reasons for which they are illegal."""

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.errors import ProblemList, UnsupportedError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.graph.legality import Status, check, check_graph
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import F32, I8, I16, I32, U8, U16, Chip, TensorType

MODE2 = Conv(mode=QCalMode.HighPrecisionAsymmetric, scale=0.5, left_zero_point=3, out_dtype=I8)


def types(*dtypes):
    return [TensorType(dtype, (1, 1, 2, 2)) for dtype in dtypes]


def test_legal_and_unfinished():
    assert check(Add(), Chip.BM1684, types(I8, U8), types(I16)).status is Status.LEGAL
    resize = Interpolate(size=(4, 4), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR)
    assert check(resize, Chip.BM1686, types(F32), types(F32)).status is Status.LEGAL


def test_operators_that_are_unfinished_as_a_whole():
    shift = ArithmeticShift(-1, RoundingMode.DOWN)
    verdict = check(shift, Chip.BM1686, types(I8), types(I8))
    assert verdict.status is Status.WARNING
    assert "marks arithmetic_shift as unfinished" in verdict.reason


def test_a_chip_without_the_operator_names_those_that_have_it():
    resize = Interpolate(size=(4, 4), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR)
    verdict = check(resize, Chip.BM1684, types(F32), types(F32))
    assert verdict.status is Status.ILLEGAL
    assert verdict.reason == "BM1684 does not have interpolate (BM1686 has it)"


def test_reports_failed_rule():
    verdict = check(Add(), Chip.BM1684, types(I16, I8), types(U16))
    assert verdict.status is Status.ILLEGAL
    assert "a UINT16 result excludes INT16 inputs" in verdict.reason


def test_a_wrong_type_names_the_operand_and_what_it_may_be():
    verdict = check(Add(), Chip.BM1682, types(I8, I8), types(I8))
    assert "tensor_i0 must be" in verdict.reason


def test_constants_that_are_required():
    ins, outs = types(I8, I8), types(I8)
    assert "tensor_weight must be constant" in check(MODE2, Chip.BM1684, ins, outs).reason
    assert check(MODE2, Chip.BM1684, ins, outs, [False, True]).status is Status.LEGAL


def test_reports_all_illegal_nodes_with_next_step():
    graph = Graph("m", "m.onnx")
    x = graph.input("x", TensorType(F32, (1, 1, 2, 2)))
    resize = Interpolate(size=(4, 4), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR)
    for index in range(3):
        with graph.source(Source("m.onnx", f"up_{index}", "Resize")):
            graph.output(graph.add(resize, x))
    problems = ProblemList("m.onnx")
    check_graph(graph, Chip.BM1684, problems)
    with pytest.raises(UnsupportedError) as caught:
        problems.raise_if_any()
    text = str(caught.value)
    assert "3 problems in 1 kind, nothing was written" in text
    assert "'up_0', 'up_1', 'up_2'" in text
    assert "--chip bm1686" in text


def test_checks_nodes_with_shared_operator_separately():
    graph, add = Graph(file="m.onnx"), Add()
    for index, dtype in enumerate((F32, I16, F32, I16)):
        x, y = (graph.input(f"{name}{index}", TensorType(dtype, (4,))) for name in "xy")
        with graph.source(Source("m.onnx", f"add_{index}", "Add")):
            graph.output(graph.add(add, x, y))
    problems = ProblemList("m.onnx")
    assert not check_graph(graph, Chip.BM1682, problems)
    with pytest.raises(UnsupportedError, match="2 problems in 1 kind") as caught:
        problems.raise_if_any()
    assert "'add_1', 'add_3'" in str(caught.value)


def test_scalars_count_as_operands():
    from tpuconvert.schema.ops.arithmetic_with_scalar import Adds
    from tpuconvert.schema.types import Scalar

    ints = [TensorType(I32, (2,))]
    assert check(Adds(Scalar(I32, 1)), Chip.BM1686, ints, ints).status is Status.LEGAL
    assert check(Adds(Scalar(F32, 1)), Chip.BM1686, ints, ints).status is Status.ILLEGAL
    assert np.dtype("int8") == I8.numpy
