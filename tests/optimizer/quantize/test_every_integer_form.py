"""Every operator with an integer form, on operands of every sign: a conversion chooses forms that the chip has.

The operator stands between two convolutions, so that it has an integer form where there is one. Its operands are never
negative, never positive, constant, 0 everywhere, far from 0, or differ in size from channel to channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.quantize.onnx_builder import OnnxNet
from tpuconvert.conversion.options.options import group_options
from tpuconvert.schema.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::tpuconvert.model.accuracy_notes.AccuracyWarning")

CHANNELS = 4
SIGNS = ("signed", "positive", "negative", "above", "zero", "constant", "channels")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Concat", "Pow", "Where", "MatMul", "Sum", "Mean")
UNARY = {
    name: {}
    for name in (
        *(
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "Exp",
            "Log",
            "Sqrt",
            "Abs",
            "Neg",
            "HardSwish",
            "HardSigmoid",
            "Elu",
        ),
        *("Softplus", "Erf", "Sin", "Cos", "Reciprocal", "Floor", "Round", "Sign", "GlobalAveragePool"),
        *("GlobalMaxPool", "Identity"),
    )
} | {
    "Softmax": {"axis": 1},
    "MaxPool": {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]},
    "AveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "Transpose": {"perm": [0, 1, 3, 2]},
    "DepthToSpace": {"blocksize": 2},
    "SpaceToDepth": {"blocksize": 2},
    "ReduceMean": {"axes": [2, 3], "keepdims": 1},
    "ReduceMax": {"axes": [2, 3], "keepdims": 1},
    "LRN": {"size": 3},
}
WITH_CONSTANT = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
FURTHER = ("Square", "SubFromConstant", "PRelu", "Clip", "Pad", "Resize", "Slice", "Split", "Gather", "DepthwiseConv",
           "ConvTranspose", "CountedPadding", "SubVector")  # fmt: skip
Case = tuple[str, tuple[str, ...]]


def operand(net: OnnxNet, sign: str) -> str:
    x = net.conv("x", CHANNELS, 1)
    positive = net.add("Relu", x)
    if sign == "channels":
        return net.add("Mul", x, net.constant(np.float32([1, 1e-3, 1e3, 1e-6]).reshape(1, CHANNELS, 1, 1)))
    zero = net.add("Mul", x, net.constant(np.float32(0)))
    return {
        "signed": x,
        "positive": positive,
        "negative": net.add("Mul", positive, net.constant(np.float32(-1))),
        "above": net.add("Add", positive, net.constant(np.float32(20))),
        "zero": zero,
        "constant": net.add("Add", zero, net.constant(np.float32(3))),
    }[sign]


def result(net: OnnxNet, name: str, operands: Sequence[str]) -> str:
    a = operands[0]
    number = net.constant(np.float32(2))
    if name in FURTHER:
        return further(net, name, a)
    if name in UNARY:
        return net.add(name, a, **UNARY[name])
    if len(operands) == 1:
        return net.add(name, a, number)
    b = operands[1]
    if name == "Where":
        return net.add("Where", net.constant(np.arange(16).reshape(4, 4) % 2 == 0), a, b)
    return net.add(name, a, b, **({"axis": 1} if name == "Concat" else {}))


def further(net: OnnxNet, name: str, a: str) -> str:
    integers = lambda *values: net.constant(np.array(values, np.int64))  # noqa: E731
    if name == "Square":
        return net.add("Mul", a, a)
    if name == "SubFromConstant":
        return net.add("Sub", net.constant(np.float32(2)), a)
    if name == "SubVector":
        return net.add("Sub", net.constant(np.arange(CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 1, 1)), a)
    if name == "PRelu":
        return net.add("PRelu", a, net.constant(np.full((CHANNELS, 1, 1), 0.3, np.float32)))
    if name == "Clip":
        return net.add("Clip", a, net.constant(np.float32(-0.5)), net.constant(np.float32(1)))
    if name == "Pad":
        return net.add("Pad", a, integers(0, 0, 1, 1, 0, 0, 1, 1))
    if name == "Resize":
        scales = net.constant(np.float32([1, 1, 2, 2]))
        return net.add("Resize", a, "", scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    if name == "Slice":
        return net.add("Slice", a, integers(1), integers(3), integers(2))
    if name == "Split":
        first, second = net.add("Split", a, integers(1, 3), outputs=2, axis=1)
        return net.add("Concat", second, first, axis=1)
    if name == "Gather":
        return net.add("Gather", a, integers(2, 0, 1, 3), axis=1)
    if name == "DepthwiseConv":
        return net.conv(a, CHANNELS, groups=CHANNELS)
    if name == "ConvTranspose":
        return net.add("ConvTranspose", a, net.normal(CHANNELS, CHANNELS, 2, 2), strides=[2, 2])
    assert name == "CountedPadding"
    return net.add("AveragePool", a, kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1)


def network(case: Case, batch: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    name, signs = case
    net = OnnxNet(0)
    net.input("x", batch, CHANNELS, 4, 4)
    y = result(net, name, [operand(net, sign) for sign in signs])
    return net.model(net.conv(y, 3, 1)), net.samples(4)


def cases() -> Iterator[Case]:
    for name, sign in itertools.product((*UNARY, *WITH_CONSTANT, *FURTHER), SIGNS):
        yield name, (sign,)
    for name, signs in itertools.product(BINARY, itertools.product(SIGNS, repeat=2)):
        yield name, signs


def check(case: Case, chip: str, batch: int, **options: str) -> None:
    """Convert, with every form that the quantizer chooses checked on the chip, and run the model."""
    proto, samples = network(case, batch)
    model = tc.convert(proto, chip=chip, calibration=samples, **group_options(quantize="int8", **options))
    with tc.Session(model) as session:
        session.run(samples[0])


@pytest.mark.parametrize("sign", [("above", "signed"), ("above", "positive"), ("zero", "negative")])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["Sub", "Add"])
def test_results_of_one_sign_on_bm1684(name: str, sign: tuple[str, ...], batch: int) -> None:
    check((name, sign), "bm1684", batch)


@pytest.mark.parametrize("case", [case for index, case in enumerate(cases()) if index % 47 == 5])
def test_some_forms(case: Case) -> None:
    for chip in ("bm1684", "bm1686"):
        check(case, chip, 2, effort="low")


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["low", "default"])
@pytest.mark.parametrize("chip", ["bm1684", "bm1686"])
@pytest.mark.parametrize("name", sorted({name for name, _ in cases()}))
def test_all_forms(name: str, chip: str, effort: str) -> None:
    for case, batch in itertools.product([case for case in cases() if case[0] == name], (1, 2)):
        check(case, chip, batch, effort=effort)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, _ in cases()}))
def test_all_forms_of_the_vendor_on_bm1684(name: str) -> None:
    """A network without any exact form is refused by name; no form is chosen that the chip does not have."""
    for case in [case for case in cases() if case[0] == name]:
        try:
            check(case, "bm1684", 1, exact_on="bm1684")
        except UnsupportedError as error:
            if "no exact form" not in str(error):
                raise
