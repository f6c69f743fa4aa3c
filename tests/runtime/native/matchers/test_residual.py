"""Residual sums join the convolution in front of them; random cases are in tests/support/native_cases."""

import numpy as np
import pytest

from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.graph.graph import Graph, Value
from tpuconvert.schema.ops.arithmetic import Add
from tpuconvert.schema.ops.convolution.conv_v2 import ConvV2
from tpuconvert.schema.ops.quantization.requant_int32 import RequantInt32, RequantMode
from tpuconvert.schema.types import I8, I32, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SHAPE = (1, 5, 6, 7)


def in_units(graph: Graph, x: Value, factor: int) -> Value:
    op = RequantInt32(
        multiplier_val=factor << 16, shift_val=15, mode=RequantMode.TFLITE_LSHIFT, out_dtype=I32, offset_val=0
    )
    return graph.add(op, x)


def shifted(graph: Graph, x: Value, bits: int) -> Value:
    op = RequantInt32(
        multiplier_val=1 << 30, shift_val=-30 - bits, mode=RequantMode.MULTIPLIER_SHIFT, out_dtype=I8, offset_val=3
    )
    return graph.add(op, x)


def block(*, weight: int = 2, bias: int = 0) -> tuple[Graph, Value]:
    """x + convolution(x), and the convolution's bytes."""
    graph = Graph("block")
    x = graph.input("x", TensorType(I8, SHAPE))
    weights = graph.constant(np.full((5, 5, 1, 1), weight, np.int8))
    biases = graph.constant(np.full((1, 5, 1, 1), bias, np.int32))
    y = shifted(graph, graph.add(ConvV2(has_bias=True), x, weights, biases), 4)
    total = graph.add(Add(), in_units(graph, y, 9000), in_units(graph, x, 20000))
    graph.output(shifted(graph, total, 14))
    return graph, y


def feed() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, SHAPE).astype(np.int8)


def kinds(graph: Graph) -> list[str]:
    session = Session(graph, backend="native", threads=1)
    wanted = Session(graph, backend="reference").run({"x": feed()})
    for name, found in session.run({"x": feed()}).items():
        np.testing.assert_array_equal(found, wanted[name])
    return [step.kind for step in session.profile({"x": feed()})]


def test_the_sum_is_part_of_the_step():
    graph, _ = block()
    assert "conv_int8 1x1 + residual" in kinds(graph)
    assert "residual" not in kinds(graph)


def test_bytes_that_somebody_else_reads_are_stored():
    graph, y = block()
    graph.output(y)
    assert {"conv_int8 1x1", "residual"} <= set(kinds(graph))


def test_where_the_convolution_is_declined_the_sum_is_not():
    graph, _ = block(weight=127, bias=2**31 - 1000)
    assert {"any_conv", "residual"} <= set(kinds(graph))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shift": 32}, "shift"),
        ({"factor": [1, 2]}, "one per channel"),
        ({"factor": [40000]}, "16 bits"),
        ({"offset": [2**31 - 1]}, "32 bits"),
        ({"low": 9, "high": 3}, "limits"),
        ({"pixel": -5}, "stride"),
        ({"offset_in_buffer": 1}, "leave its buffer"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    native = extension()
    size = int(np.prod(SHAPE))
    given = {
        "pixel": 5,
        "row": 35,
        "image": 210,
        "factor": [1],
        "other_factor": [1],
        "offset": [0],
        "shift": 1,
        "low": 0,
        "high": 255,
    }
    at = native.Place(1, wrong.pop("offset_in_buffer", 0))
    given |= wrong
    geometry = native.ConvGeometry(
        height=6, width=7, in_channels=5, out_height=6, out_width=7, out_channels=5,
        in_pixel=5, in_row=35, in_image=210, out_pixel=5, out_row=35, out_image=210,
    )  # fmt: skip

    def program(isa: str) -> None:
        spec = native.ConvInt8Spec(
            input=native.Place(0),
            output=native.Place(2),
            geometry=geometry,
            weights=np.zeros((5, 5, 1, 1), np.int8),
            epilogue=native.Epilogue(native.EpilogueSpec(), 5),
            residual=native.ResidualSpec(other=at, **given),
        )
        step = native.conv_int8(spec, isa)
        buffers = [("arena", 512 * index, size) for index in range(3)]
        native.Program(steps=[step], buffers=buffers, constants=[], arena_bytes=4096, threads=1)

    for isa in available_isas():
        with pytest.raises(ValueError, match=message):
            program(isa)
