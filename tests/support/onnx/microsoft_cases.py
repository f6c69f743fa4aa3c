"""Models of ONNX Runtime's own operators, and what ONNX Runtime makes of them.

The expected values are recorded in ``microsoft_expected.npz``, by ONNX Runtime 1.31, with

    python -m tests.support.onnx.microsoft_cases

in an environment that has ``onnx`` and ``onnxruntime``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

RECORD = Path(__file__).with_name("microsoft_expected.npz")
Array = np.ndarray[Any, Any]


def ramp(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def whole(*shape: int, low: int = 0, high: int = 256, dtype: str = "uint8", seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """``inputs`` are given when the model runs; ``constants`` are part of it. The node reads ``reads``, in order.

    ``steps`` is the tolerance in integers of a quantized result, ``rtol`` the tolerance of a float result.
    """

    op: str
    label: str
    reads: Sequence[str]
    inputs: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    steps: int = 0
    rtol: float = 2e-5
    domain: str = "com.microsoft"

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(
            self.op, list(self.reads), list(self.outputs), name="node", domain=self.domain, **self.attributes
        )
        graph = helper.make_graph(
            [node],
            "net",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in self.outputs if name],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.constants.items()],
        )
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


X = ramp(2, 3, 8)
GRAY = {"as": np.float32(0.02), "az": np.uint8(128), "ys": np.float32(0.05), "yz": np.uint8(110)}
SHARES = {**GRAY, "ys": np.float32(1 / 256), "yz": np.uint8(0)}
OF_ONE, OF_TWO, RESULT = ("a", "as", "az"), ("a", "as", "az", "b", "as", "az"), ("ys", "yz")
QA = whole(2, 6)
ATTENTION = {"w": ramp(8, 24, seed=4), "b": ramp(24, seed=5)}
IMAGE = ramp(1, 4, 6, 6, seed=7)

CASES = [
    Case("Gelu", "plain", ["x"], {"x": X}),
    Case("BiasGelu", "plain", ["x", "b"], {"x": X}, {"b": ramp(8, seed=1)}),
    Case("FastGelu", "no bias", ["x"], {"x": X}),
    Case("FastGelu", "bias", ["x", "b"], {"x": X}, {"b": ramp(8, seed=1)}),
    Case("QuickGelu", "default", ["x"], {"x": X}),
    Case("QuickGelu", "alpha", ["x"], {"x": X}, attributes={"alpha": 2.0}),
    *(
        Case(
            "FusedConv",
            name,
            ["x", "w", "b"],
            {"x": IMAGE},
            {"w": ramp(5, 4, 3, 3, seed=8), "b": ramp(5, seed=9)},
            {"activation": name, "pads": [1, 1, 1, 1], **more},
        )
        for name, more in (
            ("Relu", {}),
            ("Tanh", {}),
            ("Sigmoid", {}),
            ("LeakyRelu", {"activation_params": [0.2]}),
            ("Clip", {"activation_params": [-0.5, 0.7]}),
            ("HardSigmoid", {"activation_params": [0.25, 0.4]}),
        )
    ),
    Case(
        "FusedConv",
        "sum",
        ["x", "w", "b", "z"],
        {"x": IMAGE, "z": ramp(1, 5, 4, 4, seed=10)},
        {"w": ramp(5, 4, 3, 3, seed=8), "b": ramp(5, seed=9)},
        {"activation": "Relu"},
    ),
    Case(
        "FusedGemm",
        "all",
        ["a", "b", "c"],
        {"a": ramp(4, 3)},
        {"b": ramp(5, 4, seed=1), "c": ramp(5, seed=2)},
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    Case("FusedMatMul", "plain", ["a", "b"], {"a": ramp(2, 3, 4), "b": ramp(2, 4, 5, seed=1)}),
    Case(
        "FusedMatMul",
        "transposed",
        ["a", "b"],
        {"a": ramp(2, 4, 3), "b": ramp(2, 5, 4, seed=1)},
        attributes={"transA": 1, "transB": 1, "alpha": 0.25},
    ),
    Case(
        "SkipLayerNormalization",
        "plain",
        ["x", "s", "g", "b"],
        {"x": X, "s": ramp(2, 3, 8, seed=1)},
        {"g": ramp(8, seed=2), "b": ramp(8, seed=3)},
        {"epsilon": 1e-5},
    ),
    Case(
        "SkipLayerNormalization",
        "bias and sum",
        ["x", "s", "g", "b", "c"],
        {"x": X, "s": ramp(2, 3, 8, seed=1)},
        {"g": ramp(8, seed=2), "b": ramp(8, seed=3), "c": ramp(8, seed=4)},
        outputs=["y", "", "", "t"],
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        "bias",
        ["x", "s", "g", "b"],
        {"x": X, "s": ramp(2, 3, 8, seed=1)},
        {"g": ramp(8, seed=2), "b": ramp(8, seed=3)},
    ),
    Case("SimplifiedLayerNormalization", "plain", ["x", "g"], {"x": X}, {"g": ramp(8, seed=2)}, domain=""),
    Case(
        "RotaryEmbedding",
        "positions",
        ["x", "p", "c", "s"],
        {"x": ramp(2, 3, 16), "p": np.array([[0, 2, 4], [1, 3, 4]])},
        {"c": ramp(5, 4, seed=1), "s": ramp(5, 4, seed=2)},
    ),
    Case(
        "RotaryEmbedding",
        "offset",
        ["x", "p", "c", "s"],
        {"x": ramp(2, 2, 3, 8)},
        {"p": np.array([1]), "c": ramp(5, 4, seed=1), "s": ramp(5, 4, seed=2)},
        {"interleaved": 1},
    ),
    Case("Attention", "plain", ["x", "w", "b"], {"x": X}, ATTENTION, {"num_heads": 2}),
    Case("Attention", "causal", ["x", "w", "b"], {"x": X}, ATTENTION, {"num_heads": 2, "unidirectional": 1}),
    Case(
        "Attention",
        "mask",
        ["x", "w", "b", "m"],
        {"x": X, "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32)},
        ATTENTION,
        {"num_heads": 2},
    ),
    Case(
        "Attention",
        "lengths",
        ["x", "w", "b", "m"],
        {"x": X, "m": np.array([2, 3], np.int32)},
        ATTENTION,
        {"num_heads": 2},
    ),
    Case(
        "Attention",
        "past",
        ["x", "w", "b", "", "p"],
        {"x": X, "p": ramp(2, 2, 2, 4, 4, seed=6)},
        ATTENTION,
        {"num_heads": 2, "unidirectional": 1},
        outputs=["y", "present"],
    ),
    Case(
        "MultiHeadAttention",
        "bias",
        ["q", "k", "v", "b", "", "a"],
        {"q": X, "k": ramp(2, 5, 8, seed=1), "v": ramp(2, 5, 8, seed=2), "a": ramp(1, 2, 3, 5, seed=3)},
        {"b": ramp(24, seed=5)},
        {"num_heads": 2},
    ),
    Case(
        "MultiHeadAttention",
        "mask",
        ["q", "k", "v", "", "m"],
        {
            "q": X,
            "k": ramp(2, 5, 8, seed=1),
            "v": ramp(2, 5, 8, seed=2),
            "m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        },
        attributes={"num_heads": 2},
    ),
    Case(
        "QGemm",
        "per column",
        ["a", "as", "az", "w", "ws", "wz", "c", "ys", "yz"],
        {"a": QA},
        {
            **GRAY,
            "w": whole(6, 5, low=-128, high=128, dtype="int8"),
            "ws": np.array([0.01, 0.02, 0.015, 0.03, 0.005], np.float32),
            "wz": np.zeros(5, np.int8),
            "c": np.arange(-500, 500, 200, dtype=np.int32),
        },
        steps=1,
    ),
    Case(
        "QGemm",
        "real result",
        ["a", "as", "az", "w", "ws", "wz"],
        {"a": QA},
        {**GRAY, "w": whole(5, 6, low=-128, high=128, dtype="int8"), "ws": np.float32(0.01), "wz": np.int8(0)},
        {"transB": 1, "alpha": 0.5},
    ),
    Case(
        "MatMulIntegerToFloat",
        "bias",
        ["a", "w", "as", "ws", "az", "wz", "c"],
        {"a": QA, "as": np.array([0.02], np.float32), "az": np.array([120], np.uint8)},
        {
            "w": whole(6, 5, low=-128, high=128, dtype="int8"),
            "ws": np.array([0.01, 0.02, 0.015, 0.03, 0.005], np.float32),
            "wz": np.zeros(5, np.int8),
            "c": ramp(5),
        },
    ),
    Case(
        "DynamicQuantizeMatMul",
        "bias",
        ["a", "w", "ws", "wz", "c"],
        {"a": ramp(2, 6)},
        {
            "w": whole(6, 5, low=-128, high=128, dtype="int8"),
            "ws": np.float32(0.01),
            "wz": np.int8(3),
            "c": ramp(5),
        },
    ),
    *(
        Case(
            "GatherBlockQuantized",
            f"{bits} bits" + (", zero points" if zero else ""),
            ["w", "ids", "s"] + (["z"] if zero else []),
            {"ids": np.array([[0, 4], [2, -1]], np.int64)},
            {
                "w": whole(5, 96 * bits // 8),
                "s": ramp(5, 3, seed=1),
                **({"z": whole(5, -(-3 * bits // 8))} if zero else {}),
            },
            {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1},
            rtol=0,
        )
        for bits in (4, 8)
        for zero in (False, True)
    ),
    *(
        Case(
            "MatMulNBits",
            f"{bits} bits" + (", zero points" if zero else ""),
            ["x", "w", "s"] + (["z"] if zero else []),
            {"x": ramp(2, 40)},
            {
                "w": whole(3, 2, 32 * bits // 8),
                "s": ramp(3, 2, seed=1),
                **({"z": whole(3, -(-2 * bits // 8))} if zero else {}),
            },
            {"K": 40, "N": 3, "bits": bits, "block_size": 32},
            rtol=2e-4,
        )
        for bits in (4, 8)
        for zero in (False, True)
    ),
    *(
        Case(
            "MatMulNBits",
            label,
            ["x", "w", "s", "" if zero is None else "z", "" if order is None else "order", "b"],
            {"x": ramp(*rows, depth)},
            {
                "w": whole(5, -(-depth // block), block * bits // 8),
                "s": ramp(5 * -(-depth // block), seed=1),
                **({"z": zero} if zero is not None else {}),
                "b": ramp(5, seed=2),
                **({"order": order} if order is not None else {}),
            },
            {"K": depth, "N": 5, "bits": bits, "block_size": block, "accuracy_level": 1},
            rtol=1e-3,
        )
        for label, rows, depth, bits, block, zero, order in (
            ("float zero points, bias", (2, 3), 40, 4, 16, ramp(15, seed=4, low=4.0, high=12.0), None),
            ("blocks of 512", (1,), 1025, 4, 512, whole(10), None),
            # ONNX Runtime 1.32 ignores integer zero points if the groups are in another order
            ("groups in another order", (2,), 64, 4, 32, None, np.array([1, 0] * 32, np.int32)),
        )
    ),
    Case("QLinearAdd", "plain", [*OF_TWO, *RESULT], {"a": QA, "b": QA[::-1].copy()}, GRAY, steps=1),
    Case("QLinearMul", "plain", [*OF_TWO, *RESULT], {"a": QA, "b": QA[::-1].copy()}, GRAY, steps=1),
    Case("QLinearSigmoid", "plain", [*OF_ONE, *RESULT], {"a": QA}, SHARES, steps=1),
    Case("QLinearLeakyRelu", "plain", ["a", "as", "az", "ys", "yz"], {"a": QA}, GRAY, {"alpha": 0.2}, steps=1),
    Case("QLinearConcat", "plain", [*RESULT, *OF_ONE, "b", "bs", "bz"], {"a": QA, "b": QA[::-1].copy()},
         {**GRAY, "bs": np.float32(0.03), "bz": np.uint8(100)}, {"axis": 1}, steps=1),
    Case("QLinearSoftmax", "plain", [*OF_ONE, *RESULT], {"a": QA}, SHARES, {"axis": -1, "opset": 13}, steps=1),
    Case("QLinearGlobalAveragePool", "plain", ["a", "as", "az", "ys", "yz"], {"a": whole(1, 3, 4, 5)}, GRAY, steps=1),
    Case("QLinearAveragePool", "plain", [*OF_ONE, *RESULT], {"a": whole(1, 3, 4, 6)}, GRAY,
         {"kernel_shape": [2, 2], "strides": [2, 2]}, steps=1),
]  # fmt: skip


def record() -> None:
    """Run every case with ONNX Runtime and keep its results."""
    import onnxruntime

    found = {}
    for case in CASES:
        session = onnxruntime.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        names = [name for name in case.outputs if name]
        for name, array in zip(names, session.run(names, case.inputs), strict=True):
            found[f"{case}/{name}"] = array
    np.savez_compressed(RECORD, **found)


if __name__ == "__main__":
    record()
