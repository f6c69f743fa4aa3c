"""Data movement, selection, matmuls, normalizations, recurrent layers, attention, signal processing."""

from typing import Any

import numpy as np

from tests.support.onnx.cases.case import Case, a, i64
from tests.support.onnx.models import ramp

X = ramp(2, 3, 4)
LONG = np.arange(24).reshape(2, 3, 4)

MOVEMENT = [
    *(Case("Transpose", [X], [], a(perm=list(order))) for order in ((0, 2, 1), (2, 0, 1), (2, 1, 0))),
    Case("Transpose", [ramp(3)]),
    *(Case("Transpose", [LONG.astype(kind)]) for kind in ("int64", "int32", "uint8", "float64")),
    *(Case("Flatten", [X], [], a(axis=axis)) for axis in (0, 1, 3)), Case("Flatten", [X], [], a(axis=-2), since=11),
    *(Case("Concat", [X, X + 1], [X[:, :1]], a(axis=1)) for _ in (0,)), Case("Concat", [X], [], a(axis=0)),
    Case("Concat", [LONG, LONG], [], a(axis=2)), Case("Concat", [X, X[:1]], [], a(axis=-3), since=11),
    *(Case("Gather", [X], [index], a(axis=axis))
          for axis, index in ((0, i64(1)), (1, np.array([[0, 2], [1, 1]])), (2, np.int64(3)))),
    *(Case("Gather", [X], [index], a(axis=axis), since=11) for axis, index in ((-1, i64(-1, 0)), (-2, np.int64(-3)))),
    *(Case("Gather", [x, i64(2, 0)], [], a(axis=1)) for x in (X, LONG)),
    Case("Gather", [X, np.array(1, np.int32)], [], a(axis=1)),
    Case("Gather", [X > 0], [i64(0, 2)], a(axis=1)),
    *(Case("GatherElements", [X], [np.array([[[0, 2, 1, -1]]] * 2)], a(axis=axis)) for axis in (1, 2)),
    Case("GatherElements", [X], [np.array([[[1, 0, -1, 0]] * 3])], a(axis=0)),
    Case("GatherElements", [LONG], [np.array([[[0, 1]]])], a(axis=-1)),
    *(Case("GatherND", [X], [index], b, 13) for index, b in (
        (np.array([[0, 1, 2], [1, 0, -1]]), a()), (np.array([[[0]], [[1]]]), a()),
        (np.array([[1, 2], [0, 3]]), a(batch_dims=1)),
        (np.array([[[1], [0], [-1]]] * 2), a(batch_dims=2)))),
    Case("GatherND", [LONG], [np.array([[1, 1]])], opset=13),
    *(Case("ScatterND", [ramp(4, 3)], [np.array([[1], [3], [0]]), ramp(3, 3, seed=1)], b, since=s)
      for s, b in ((11, a()), (16, a(reduction="add")), (16, a(reduction="mul")), (18, a(reduction="max")),
      (18, a(reduction="min")))),
    Case("ScatterND", [ramp(2, 3, 4)], [np.array([[0, 1], [1, 2]]), ramp(2, 4, seed=1)]),
    *(Case("ScatterElements", [ramp(3, 4)], [np.array([[0, 2, 1, 0], [2, 0, 0, 1]]), ramp(2, 4, seed=1)],
          a(axis=0, **b), since=s)
      for s, b in ((11, a()), (16, a(reduction="add")), (16, a(reduction="mul")), (18, a(reduction="max")),
      (18, a(reduction="min")))),
    Case("ScatterElements", [ramp(3, 4)], [np.array([[1], [3], [-1]]), ramp(3, 1, seed=1)], a(axis=-1)),
    *(Case("Expand", [ramp(3, 1)], [i64(*shape)]) for shape in ((2, 3, 4), (3, 4), (1,), (1, 1, 1, 2))),
    Case("Expand", [np.float32(2)], [i64(2, 2)]),
    *(Case("Tile", [X], [i64(*times)]) for times in ((1, 1, 1), (2, 1, 3))), Case("Tile", [LONG], [i64(1, 2, 1)]),
    *(Case("Trilu", [x], [np.int64(k)], a(upper=u)) for x in (X, LONG) for k in (-1, 0, 2) for u in (0, 1)),
    *(Case("CumSum", [x], [np.int64(axis)], a(exclusive=e, reverse=r), atol=1e-5) for x in (X, LONG.astype(np.int32))
      for axis, e, r in ((0, 0, 0), (1, 1, 0), (-1, 0, 1), (2, 1, 1))),
    *(Case("OneHot", [x], [depth, np.array([0, 3], np.float32)], a(axis=axis),
          11) for x in (np.array([[0, 2], [-1, 5]]),)
      for depth in (i64(4), np.float32(4)) for axis in (-1, 0, 1)),
    Case("OneHot", [np.array([1, 0], np.int32)], [np.int32(3), np.array([5, 7], np.int32)], opset=11),
    *(Case("ReverseSequence", [ramp(4, 3)], [i64(1, 4, 2)], b) for b in (a(), a(time_axis=0, batch_axis=1))),
    *(Case("CenterCropPad", [X], [i64(*shape)], b, 18) for shape, b in (((4, 2, 4), a()), ((5,), a(axes=[-1])))),
    *(Case(op, [np.round(X)], [], a(axis=axis, keepdims=keep)) for op in ("ArgMax", "ArgMin") for axis in (0,
          2) for keep in (0, 1)),
    *(Case(op, [np.round(X)], [], a(axis=-1), since=11) for op in ("ArgMax", "ArgMin")),
    *(Case(op, [LONG.astype(np.int32)], [], a(axis=1)) for op in ("ArgMax", "ArgMin")),
    Case("NonZero", [np.array([[1, 0, 2], [0, 0, 3]], np.float32)]), Case("NonZero", [X > 0]), Case("NonZero", [LONG]),
    *(Case("Compress", [X], [np.array([True, False, True])], b) for b in (a(axis=1), a())),
    Case("NonMaxSuppression", [ramp(1, 6, 4, low=0, high=1), ramp(1, 2, 6, low=0, high=1)],
          [i64(3), np.float32([0.3]), np.float32([0.2])], since=10),
    Case("NonMaxSuppression", [ramp(1, 6, 4, low=0, high=1), ramp(1, 2, 6, low=0, high=1)],
          [i64(4), np.float32([0.4])], a(center_point_box=1)),
]  # fmt: skip

PRODUCTS = [
    *(Case("MatMul", [p, q], atol=1e-5) for p, q in (
        (ramp(3, 4), ramp(4, 2)), (ramp(4), ramp(4, 2)), (ramp(3, 4), ramp(4)), (ramp(4), ramp(4)),
        (ramp(2, 3, 4), ramp(2, 4, 5)),
        (ramp(2, 1, 3, 4), ramp(3, 4, 2)), (ramp(1, 3, 4), ramp(2, 4, 5)), (ramp(4), ramp(2, 4, 5)),
        (ramp(2, 3, 4), ramp(4)))),
    *(Case("Einsum", list(x), [], a(equation=e), 12, atol=1e-5) for e, x in (
        ("bhqd,bhkd->bhqk", (ramp(2, 2, 3, 4), ramp(2, 2, 5, 4))), ("abc->cab", (X,)), ("abc,abc->", (X, X)),
        ("ab,cb", (ramp(2, 3), ramp(4, 3))),
        ("...ab,...bc->...ac", (ramp(2, 1, 3, 4), ramp(5, 4, 2))), ("aab->b", (ramp(3, 3, 2),)),
        ("i,i->i", (ramp(3), ramp(3))),
        ("ij,jk,k->i", (ramp(2, 3), ramp(3, 4), ramp(4))), ("b...i->b...", (X,)))),
    Case("MatMulInteger", [np.arange(6, dtype=np.uint8).reshape(2, 3)],
          [np.arange(12, dtype=np.uint8).reshape(3, 4), np.uint8(2), np.uint8(3)]),
    Case("MatMulInteger", [np.arange(6, dtype=np.uint8).reshape(2, 3)], [np.arange(12, dtype=np.uint8).reshape(3, 4)]),
    Case("ConvInteger", [np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)],
          [np.arange(16, dtype=np.uint8).reshape(2, 2, 2, 2), np.uint8(5)]),
    Case("DynamicQuantizeLinear", [X], outputs=3), Case("DynamicQuantizeLinear", [np.abs(X)], outputs=3),
    Case("QuantizeLinear", [X], [np.float32(0.05), np.uint8(128)]),
    Case("QuantizeLinear", [X], [np.float32(0.05), np.int8(3)]),
    Case("QuantizeLinear", [X], [ramp(4, low=0.05, high=0.1), np.array([1, 2, 3, 4], np.int8)], a(axis=2)),
    *(Case("DequantizeLinear", [LONG.astype(kind)], [np.float32(0.5), np.array(3, kind)]) for kind in ("uint8",
          "int8")),
    Case("DequantizeLinear", [LONG.astype(np.int32)], [np.float32(0.5)]),
]  # fmt: skip

CHANNELS = [ramp(4, seed=1), ramp(4, seed=2)]
IMAGE = ramp(2, 4, 5, 3)
NORMALIZATION = [
    *(Case("LayerNormalization", [X], [ramp(*X.shape[axis:], seed=1), ramp(*X.shape[axis:], seed=2)][:count],
          a(axis=axis, epsilon=e), 17, atol=3e-5)
      for axis, e in ((-1, 1e-5), (1, 0.1), (0, 1e-5), (-2, 1e-3)) for count in (1, 2)),
    Case("LayerNormalization", [X], [ramp(4)], outputs=3, atol=3e-5),
    *(Case("GroupNormalization", [IMAGE], CHANNELS, a(num_groups=n), 21, atol=3e-5, since=21) for n in (1, 2, 4)),
    *(Case("GroupNormalization", [IMAGE], [ramp(2, seed=1), ramp(2, seed=2)], a(num_groups=2), 18, atol=3e-5,
          until=20) for _ in (0,)),
    *(Case("InstanceNormalization", [x], CHANNELS, b, atol=3e-5) for x in (IMAGE, ramp(2, 4, 6),
          ramp(1, 4, 2, 3, 2)) for b in (a(), a(epsilon=0.2))),
    *(Case("MeanVarianceNormalization", [IMAGE], [], b, atol=3e-5) for b in (a(), a(axes=[1]), a(axes=[2, 3]))),
    *(Case("LpNormalization", [X], [], a(axis=axis, p=p)) for axis in (0, -1) for p in (1, 2)),
    *(Case("LRN", [ramp(5, 5, 3, 3)], [], a(size=n, **b), atol=1e-5) for n,
          b in ((1, a()), (3, a(alpha=0.9, beta=0.5, bias=2.0)), (4, a()), (5, a()))),
    *(Case("RMSNormalization", [X], [ramp(*X.shape[axis:], seed=1)], a(axis=axis), 23, atol=3e-5) for axis in (-1, 1)),
    *(Case("BatchNormalization", [x], [*CHANNELS, ramp(4, seed=3), ramp(4, seed=4, low=0.3)],
          atol=2e-5) for x in (IMAGE, ramp(3, 4), ramp(1, 4, 2, 2, 2))),
]  # fmt: skip

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op: str, direction: str = "forward", steps: int = 4, extra: str = "", **attributes: Any) -> Case:
    """``extra`` lists the inputs in addition to the weights: (B)ias, (s)tate, (l)engths, (p)eepholes."""
    size, hidden, batch, count = 3, 4, 2, 2 if direction == "bidirectional" else 1
    rows = GATES[op] * hidden
    weights = [ramp(count, rows, n, seed=n, low=-1, high=1) for n in (size, hidden)]
    bias = ramp(count, 2 * rows, seed=8, low=-1, high=1) if "B" in extra else None
    lengths = np.array([steps, 2], np.int32) if "l" in extra else None
    state = ramp(count, batch, hidden, seed=9, low=-1, high=1) if "s" in extra else None
    constants = [*weights, bias, lengths, state]
    if op == "LSTM":
        constants += [state, ramp(count, 3 * hidden, seed=10, low=-1, high=1) if "p" in extra else None]
    while constants[-1] is None:
        constants.pop()
    outputs = 3 if op == "LSTM" else 2
    return Case(op, [ramp(steps, batch, size, low=-1, high=1)], constants,
    a(hidden_size=hidden, direction=direction, **attributes), 14,
                outputs, 2e-5)  # fmt: skip


NAMES = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
RECURRENT = [
    *(recurrent(op, direction, extra=extra) for op in GATES for direction in ("forward", "reverse", "bidirectional")
      for extra in ("", "B", "Bs", "Bl", "Bsl")),
    *(recurrent("GRU", direction, extra="Bs", linear_before_reset=1) for direction in ("forward", "bidirectional")),
    *(recurrent("LSTM", direction, extra="Bsp") for direction in ("forward", "reverse")),
    recurrent("LSTM", extra="B", input_forget=1),
    *(recurrent(op, extra="B", clip=0.5) for op in GATES),
    *(recurrent(op, extra="B", activations=[name] * len(NAMES[op])) for op in GATES for name in ("Relu", "Sigmoid",
          "HardSigmoid")),
    *(recurrent(op, "bidirectional", extra="B", activations=[*names, *("Relu" for _ in names)]) for op,
          names in NAMES.items()),
    recurrent("RNN", extra="B", activations=["LeakyRelu"], activation_alpha=[0.2]),
    recurrent("RNN", extra="B", activations=["Softsign"]), recurrent("RNN", steps=1),
]  # fmt: skip

TOKENS = ramp(2, 3, 8)
HEADS = [ramp(2, 2, 3, 4, seed=k) for k in range(3)]
SIGNALS = [
    *(Case("Attention", HEADS, [], b, 23, atol=2e-5) for b in (a(), a(is_causal=1), a(scale=0.3), a(softcap=1.5))),
    Case("Attention", HEADS, [ramp(3, 3)], opset=23, atol=2e-5),
    Case("Attention", HEADS, [np.tri(3) > 0], opset=23, atol=2e-5),
    Case("Attention", [TOKENS, TOKENS, TOKENS], [], a(q_num_heads=2, kv_num_heads=2), 23, atol=2e-5),
    Case("CausalConvWithState", [ramp(2, 3, 8)], [ramp(3, 1, 4, seed=1), ramp(3)], opset=27, outputs=2, atol=1e-5),
    *(Case("DFT", [ramp(1, 8, 2)], [None, np.int64(1)], b, 20, atol=1e-4) for b in (a(), a(inverse=1))),
    *(Case("DFT", [ramp(1, 8, 1)], [], a(axis=1, onesided=n), 17, atol=1e-4) for n in (0, 1)),
    Case("STFT", [ramp(1, 32, 1)], [np.int64(4), np.hanning(8).astype(np.float32)], opset=17, atol=1e-4),
    *(Case(op, [], [np.int64(8)], a(periodic=p), 17) for op in ("HannWindow", "HammingWindow",
          "BlackmanWindow") for p in (0, 1)),
    *(Case("Det", [x], opset=11, atol=1e-4) for x in (ramp(3, 3), ramp(2, 2, 2))),
    Case("SimplifiedLayerNormalization", [X], [ramp(4)], a(axis=-1), atol=2e-5),
    *(Case("CumProd", [X], [np.int64(1)], b, 26, atol=1e-5) for b in (a(), a(exclusive=1))),
    *(Case("RotaryEmbedding", [ramp(2, 2, 3, 4), ramp(5, 2), ramp(5, 2, seed=1)], [np.array([[0, 1, 2], [2, 3, 4]])],
          a(interleaved=n), 23, atol=1e-5)
      for n in (0, 1)),
]  # fmt: skip

CASES = MOVEMENT + PRODUCTS + NORMALIZATION + RECURRENT + SIGNALS
