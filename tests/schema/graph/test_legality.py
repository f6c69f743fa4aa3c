"""Legality of operators per chip, and the reasons for which they are illegal."""

from dataclasses import FrozenInstanceError, dataclass
from types import MappingProxyType

import numpy as np
import pytest

from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op, Operand, Rule, Support, case
from tpuconvert.schema.errors import ProblemList, UnsupportedError
from tpuconvert.schema.graph.graph import Graph, Source
from tpuconvert.schema.graph.legality import LEGAL, Status, check, check_graph, check_use, refused_constants
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.atomic.dequant import TpuBdcIntPcDequant
from tpuconvert.schema.ops.channel_shuffle import ChannelShuffle
from tpuconvert.schema.ops.convolution.conv import Conv
from tpuconvert.schema.ops.interpolate import Interpolate, InterpolateMode, PlatForm
from tpuconvert.schema.ops.matmul.quantized_modes import QCalMode
from tpuconvert.schema.ops.selection import ConditionSelect, Select, SelectType
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


def report(graph: Graph, chip: Chip) -> str:
    """Return the text about the illegal nodes of a graph."""
    problems = ProblemList("m.onnx")
    check_graph(graph, chip, problems)
    with pytest.raises(UnsupportedError) as caught:
        problems.raise_if_any()
    return str(caught.value)


def test_a_shared_verdict_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        LEGAL.status = Status.ILLEGAL


def test_parameters_that_no_case_takes_are_named_without_the_types():
    resize = Interpolate(size=(4, 4), platform=PlatForm.PYTORCH, method=InterpolateMode.BILINEAR)
    assert check(resize, Chip.BM1686, types(F32), types(F32)).reason == (
        f"{resize} has no legal form on BM1686 with these parameters, which need: platform is TENSORFLOW or OPENCV"
    )
    resize = Interpolate(size=(4, 4), platform=PlatForm.TENSORFLOW, method=InterpolateMode.BILINEAR)
    assert check(resize, Chip.BM1686, types(I16), types(I16)).reason == (
        "interpolate on BM1686 does not take (tensor_i: INT16, tensor_o: INT16): tensor_i must be FLOAT32"
    )


NEVER = Rule("never", "never holds", lambda assignment: False)


@dataclass(frozen=True)
class Probe(Op):
    """An operator with three operands, of which the second may be absent."""

    name = "probe"
    inputs = (Operand("first"), Operand("second", optional=True), Operand("third"))


def with_cases(*cases):
    """A probe with these cases on BM1686."""
    return type("Cases", (Probe,), {"dtypes": MappingProxyType({Chip.BM1686: Support(cases)})})()


@pytest.mark.parametrize("order", [1, -1])
def test_the_reason_is_of_the_case_that_meets_most_conditions(order):
    by_depth = [
        case({}, when=lambda op: False),
        case({"first": (I8,)}),
        case({}, requires_coeff=("first",)),
        case({}, NEVER),
    ]
    texts = ["with these parameters", "first must be INT8", "first must be constant", "never holds"]
    for count, text in enumerate(texts, start=1):
        verdict = check(with_cases(*by_depth[:count][::order]), Chip.BM1686, types(F32, F32, F32), types(F32))
        assert verdict.status is Status.ILLEGAL
        assert verdict.reason.endswith(text)


def test_operands_after_an_absent_one_are_checked():
    probe = with_cases(case({"third": (I8,)}))
    first, third = types(F32, F32)
    assert check(probe, Chip.BM1686, [first, None, third], types(F32)).status is Status.ILLEGAL
    assert check(probe, Chip.BM1686, [first, None, types(I8)[0]], types(F32)).status is Status.LEGAL


def test_constants_of_one_element_and_one_of_two_operands():
    one, two = TensorType(F32, (1,)), TensorType(F32, (2,))
    choice = ConditionSelect()
    assert refused_constants(choice, [two, one, two], [False, True, False]) == {}
    assert list(refused_constants(choice, [two, one, two], [False, True, True])) == [2]
    select = Select(SelectType.GREATER_THAN)
    assert refused_constants(select, [two, two, one, one], [True, False, True, True]) == {}
    assert list(refused_constants(select, [two, two, one, one], [True, True, True, True])) == [1]


def test_constants_that_the_optimizer_converts_are_accepted_until_then():
    graph = Graph(file="m.onnx")
    x = graph.input("x", TensorType(F32, (2,)))
    choices = [graph.constant(np.ones(2, np.float32), name) for name in "ab"]
    graph.output(graph.add(ConditionSelect(), x, *choices))
    (node,) = graph.nodes
    assert check_use(node, Chip.BM1686).status is Status.LEGAL
    assert "a constant tensor_sel0 must have one element, found [2]" in report(graph, Chip.BM1686)


def test_values_of_constants_that_an_operator_does_not_accept():
    graph = Graph(file="m.onnx")
    x = graph.input("x", TensorType(I8, (1, 1, 1, 1)))
    for name, offset in (("good", 127), ("bad", 128)):  # offsets have the sign of x and 16 bits
        quant = graph.constant(np.array([[[[offset * 256, 1, 0]]]], np.int32), name)
        sources = (Source("m.onnx", f"{name} node", "First"), Source("m.onnx", "other node", "Other"))
        with graph.source(*sources):
            graph.output(graph.add(TpuBdcIntPcDequant(rounding_mode=RoundingMode.HALF_UP), x, quant, name=f"{name} y"))
    text = report(graph, Chip.BM1686)
    assert "1 problem in 1 kind" in text
    assert "'bad node'" in text and "First" in text and "other node" not in text
    assert "offset" in text and "change these parameters in the source" in text


@pytest.mark.parametrize("extents", [(2, 4, 2, 2), ("n", 4, 2, 2)])
def test_symbolic_extents_of_a_composite_are_the_next_step(extents):
    graph = Graph(file="m.onnx")
    x = graph.input("x", TensorType(I8, extents))
    graph.output(graph.add(ChannelShuffle(2), x))
    is_symbolic = "n" in extents
    text = report(graph, Chip.BM1682)
    assert ("set numbers for its extents (--input-shapes)" in text) is is_symbolic
    assert ("choose a chip that has it" in text) is not is_symbolic


def test_symbolic_extents_of_another_operator_leave_the_choice_of_a_chip():
    graph = Graph(file="m.onnx")
    x, y = (graph.input(name, TensorType(I16, ("n",))) for name in "xy")
    graph.output(graph.add(Add(), x, y))
    assert "choose a chip that has it" in report(graph, Chip.BM1682)
