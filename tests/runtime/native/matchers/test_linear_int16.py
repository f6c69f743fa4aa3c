"""Linear operators with 16 bits run in one step; random cases are in ``tests/support/native_cases/int16.py``."""

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.arithmetic.fixed_point import RoundingMode
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.arithmetic import Add, Sub
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.ops.shifts.arithmetic_shift import ArithmeticShift
from tpuconvert.schema.types import I8, I16, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

ELEMENTWISE = ("elementwise_int", "reference")
"""Kernels that only the operators of a node with 16 bits need in these graphs."""


def linear(
    weight: int, *, multiplier: int = 1 << 30, shift: int = -40, is_shared: bool = False, last: Op | None = None
) -> Graph:
    """A 1x1 conv with 16 bits, as the quantizer writes it, the requantization of its sums, and a last operator."""
    graph = Graph("linear")
    x = graph.input("x", TensorType(I16, (1, 5, 6, 7)))
    high = graph.add(ArithmeticShift(-8, RoundingMode.HALF_UP, out_dtype=I8), x)
    rounded = graph.add(ArithmeticShift(8, RoundingMode.DOWN, out_dtype=I16), high)
    low = graph.add(Sub(out_dtype=I8), x, rounded)
    upper = graph.constant(np.full((4, 5, 1, 1), weight, np.int8))
    lower = graph.constant(np.full((4, 5, 1, 1), 77, np.int8))
    top, middle, other = (graph.add(ConvV2(), *operands) for operands in ((high, upper), (high, lower), (low, upper)))
    grown = graph.add(ArithmeticShift(8, RoundingMode.DOWN), top)
    total = graph.add(Add(), grown, graph.add(Add(), middle, other))
    op = RequantInt32(multiplier_val=multiplier, shift_val=shift, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I16)
    words = graph.add(op, total)
    graph.output(words if last is None else graph.add(last, words))
    if is_shared:
        graph.output(low)
    return graph


def kernels_of(graph: Graph, isa: str = "scalar") -> list[str]:
    """Names of the kernels of a plan. The results equal the reference, also at the ends of the range."""
    ends = np.array([-32768, -32767, -129, -128, -1, 0, 127, 128, 32639, 32640, 32767], np.int16)
    feed = {"x": np.random.default_rng(1).choice(ends, (1, 5, 6, 7))}
    wanted = Session(graph, backend="reference").run(feed)
    for threads in (1, 2):
        for name, found in Session(graph, backend="native", threads=threads).run(feed).items():
            np.testing.assert_array_equal(found, wanted[name])
    return list(NativePlan(graph, "BM1686", isa, 1).kernels)


@pytest.mark.parametrize("isa", available_isas())
def test_the_operators_of_a_node_are_one_step(isa):
    found = kernels_of(linear(100), isa)
    assert "conv_int16" in found
    assert not {"conv_int8", *ELEMENTWISE} & set(found)


def test_bytes_with_another_user_are_stored():
    found = kernels_of(linear(100, is_shared=True))
    assert {"conv_int16", "elementwise_int"} <= set(found)
    assert "conv_int8" not in found


@pytest.mark.parametrize(
    "parameters", [{"multiplier": -(1 << 30)}, {"shift": -1}, {"shift": -63}], ids=["negative", "large", "small"]
)
def test_other_requantizations_keep_the_operators(parameters):
    found = kernels_of(linear(100, **parameters))
    assert "conv_int16" not in found
    assert "conv_int8" in found


def test_sums_that_may_leave_32_bits_keep_the_operators():
    graph = Graph("long")
    x = graph.input("x", TensorType(I8, (1, 600, 1, 1)))
    upper, lower = (graph.constant(np.full((2, 600, 1, 1), value, np.int8)) for value in (127, 127))
    top, middle = (graph.add(ConvV2(), x, weights) for weights in (upper, lower))
    total = graph.add(Add(), graph.add(ArithmeticShift(8, RoundingMode.DOWN), top), middle)
    op = RequantInt32(multiplier_val=1 << 30, shift_val=-46, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I16)
    graph.output(graph.add(op, total))
    assert "conv_int16" not in NativePlan(graph, "BM1686", "scalar", 1).kernels


def test_a_quantized_network_has_one_step_per_node():
    """The operators that the quantizer writes match: depthwise and dense convs with 16 bits, and an 8-bit user."""
    net = OnnxNet(4)
    x = net.add("Relu", net.conv(net.input("x", 1, 8, 12, 12), 8, groups=8))
    output = net.conv(net.add("Relu", net.conv(x, 24)), 10)
    names = [node.name for node in net.model(output).graph.node if node.op_type == "Conv"]
    model = tc.convert(
        net.model(output),
        quantize=tc.Quantization(precision=[f"{name}=int16" for name in names[:2]]),
        calibration=net.samples(8),
    )
    feeds = net.samples(1, seed=9)[0]
    with tc.Session(model, threads=1) as session, tc.Session(model, backend="reference") as reference:
        kinds = [step.kind for step in session.profile(feeds)]
        for name, expected in reference.run(feeds).items():
            np.testing.assert_array_equal(session.run(feeds)[name], expected)
    assert sum("_int16" in kind for kind in kinds) == 2, kinds
    assert sum("_int8" in kind for kind in kinds) == 1, kinds


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weights": np.zeros((4, 6, 1, 1), np.int8)}, "shape of the weights"),
        ({"bias": [1, 2]}, "one per output channel"),
        ({"input_zero": 256}, "zero point"),
        ({"in_pixel": 9}, "multiple of its elements"),
        ({"shift": -61}, "not supported"),
        ({"shift": -1}, "31 bits"),
        ({"rescale": "NONE"}, "one rounding"),
        ({"bytes": 4, "low": -(2**31), "high": 2**31 - 1}, "8 or 16 bits"),
        ({"weights": np.zeros((4, 5, 1, 1), np.uint8)}, "INT8"),
        ({"bias": [2**31 - 1] * 4}, "32 bits"),
    ],
)
def test_wrong_parameters_are_errors(wrong, message):
    """The kernel checks what the matcher guarantees, because files are not trusted."""
    module = extension()
    given = {"shift": -40, "rescale": "ONE_ROUNDING", "bytes": 2, "low": -32768, "high": 32767, "in_pixel": 10} | wrong
    rescaled = {} if given["rescale"] == "NONE" else {
        "multiplier": np.array([1 << 30], np.int32), "shift": np.array([given["shift"]], np.int32)
    }  # fmt: skip
    epilogue = module.EpilogueSpec(
        rescale=getattr(module.Rescale, given["rescale"]), rounding=int(RoundingMode.HALF_UP),
        offset=np.array([0], np.int32), low=given["low"], high=given["high"], bytes=given["bytes"], **rescaled,
    )  # fmt: skip
    geometry = module.ConvGeometry(
        width=3, out_width=3, in_channels=5, out_channels=4, in_pixel=given["in_pixel"], in_row=30, in_image=30,
        out_pixel=16, out_row=48, out_image=48,
    )  # fmt: skip
    spec = module.ConvInt16Spec(
        input=module.Place(0, 0), output=module.Place(1, 0), geometry=geometry, is_wide=True,
        high=given.get("weights", np.full((4, 5, 1, 1), 90, np.int8)), low=np.full((4, 5, 1, 1), 9, np.int8),
        bias=given.get("bias", [0] * 4), input_zero=given.get("input_zero", 0), epilogue=module.Epilogue(epilogue, 4),
    )  # fmt: skip
    with pytest.raises((ValueError, OverflowError), match=message):
        module.conv_int16(spec, "scalar")


def test_networks_with_16_bit_functions_and_sums_have_few_steps():
    """Functions gather in the step of their neighbors; bytes with a scale per channel leave the 16-bit kernel."""
    net = OnnxNet(3)
    x = net.add("HardSwish", net.conv(net.input("x", 1, 8, 12, 12), 8))
    y = net.add("Add", net.conv(x, 8, groups=8), net.conv(x, 8))
    output = net.conv(net.add("Relu", y), 10)
    model = tc.convert(
        net.model(output),
        quantize=tc.Quantization(without=["coarse-nodes"], precision=["op:hard_swish=int16", "op:add=int16"]),
        calibration=net.samples(8),
    )
    feeds = net.samples(1, seed=9)[0]
    with tc.Session(model, threads=1) as session, tc.Session(model, backend="reference") as reference:
        kinds = [step.kind for step in session.profile(feeds)]
        for name, expected in reference.run(feeds).items():
            np.testing.assert_array_equal(session.run(feeds)[name], expected)
    assert "index_select" not in kinds, kinds
    assert sum(kind.startswith("conv") or kind.startswith("depthwise") for kind in kinds) == 4, kinds
    assert len(kinds) <= 12, kinds


def test_bytes_with_a_scale_per_channel_leave_the_kernel():
    op = RequantInt32(
        is_mul_shift_pc=True, multiplier_vec=(1 << 30,) * 4, shift_vec=(-37, -38, -39, -40),
        mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8,
    )  # fmt: skip
    found = kernels_of(linear(100, last=op))
    assert "conv_int16" in found
    assert not {"conv_int8", *ELEMENTWISE} & set(found)
