"""Unary operators."""

from __future__ import annotations

from tests.support.tflite.cases import Case, Given, f32, feed, i32, numbers

_ANY = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "LOGISTIC", "TANH", "HARD_SWISH", "SIN", "COS", "SQUARE")
_POSITIVE = ("LOG", "SQRT", "RSQRT")
_SHAPES = ((7,), (2, 3), (1, 3, 4, 5), (2, 2, 1, 3, 2))

CASES = [
    *(Case(op, [feed(f"{op}{shape}", shape, -7, 7)], note=f"rank {len(shape)}") for op in _ANY for shape in _SHAPES),
    *(
        Case(op, [feed(f"{op}{shape}", shape, 0.05, 9)], note=f"rank {len(shape)}")
        for op in _POSITIVE
        for shape in _SHAPES
    ),
    *(
        Case(op, [feed(f"{op}{shape}", shape, -4, 4)], note=f"rank {len(shape)}")
        for op in ("ABS", "NEG", "EXP", "FLOOR", "CEIL", "ROUND", "SIGN", "ZEROS_LIKE")
        for shape in _SHAPES
    ),
    *(
        Case(op, [feed(op, (3, 4), -90, 90, "int32")], ["INT32"], note="int32")
        for op in ("ABS", "NEG", "SIGN", "ZEROS_LIKE")
    ),
    *(Case(op, [feed(op, (3, 4), -90, 90, "int64")], ["INT64"], note="int64") for op in ("NEG", "ZEROS_LIKE")),
    Case(
        "ROUND",
        [Given(f32(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0))],
        note="halves",
    ),
    *(
        Case(
            "LEAKY_RELU",
            [feed(f"leaky{alpha}", (2, 5))],
            table="LeakyReluOptions",
            options={"alpha": alpha},
            note=f"{alpha}",
        )
        for alpha in (0.0, 0.1, 1.5)
    ),
    *(
        Case(
            "GELU",
            [feed(f"gelu{is_tanh}", (3, 9))],
            table="GeluOptions",
            options={"approximate": is_tanh},
            note=f"tanh {is_tanh}",
        )
        for is_tanh in (False, True)
    ),
    Case("PRELU", [feed("prelu", (1, 3, 4, 5)), numbers("slope", (5,))], note="slope per channel"),
    Case("PRELU", [feed("prelu", (2, 3, 4, 5)), numbers("slope", (3, 4, 5))], note="slope per element"),
    Case("PRELU", [feed("prelu", (2, 6)), numbers("slope", (1, 1))], note="one slope"),
    *(
        Case(
            "SOFTMAX",
            [feed(f"softmax{shape}", shape)],
            table="SoftmaxOptions",
            options={"beta": beta},
            note=f"{len(shape)} {beta}",
        )
        for shape in ((9,), (2, 5), (2, 3, 4), (1, 2, 3, 4))
        for beta in (1.0, 0.5)
    ),
    *(
        Case("LOG_SOFTMAX", [feed(f"logs{shape}", shape)], note=f"rank {len(shape)}")
        for shape in ((9,), (2, 5), (1, 2, 3, 4))
    ),
    *(
        Case("L2_NORMALIZATION", [feed(f"l2{shape}", shape)], table="L2NormOptions", note=f"rank {len(shape)}")
        for shape in ((9,), (2, 5), (1, 2, 3, 4))
    ),
    *(
        Case(
            "LOCAL_RESPONSE_NORMALIZATION",
            [feed(f"lrn{radius}", (1, 3, 2, 7))],
            table="LocalResponseNormalizationOptions",
            options={"radius": radius, "bias": 1.5, "alpha": 0.3, "beta": beta},
            note=f"radius {radius} beta {beta}",
            optimized=True,  # the reference kernel omits the last channel of a window, other implementations include it
        )
        for radius, beta in ((1, 0.5), (2, 0.75), (5, 1.0), (0, 0.3))
    ),
    *(
        Case(
            "CUMSUM",
            [feed("cumsum", (2, 3, 4)), i32(axis)],
            table="CumsumOptions",
            options={"exclusive": exclusive, "reverse": reverse},
            note=f"axis {axis} {exclusive} {reverse}",
        )
        for axis in (0, 1, -1)
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    Case("CUMSUM", [feed("cumsum", (2, 5), -9, 9, "int32"), i32(1)], ["INT32"], "CumsumOptions", note="int32"),
    Case("CUMSUM", [feed("cumsum", (2, 5), -9, 9, "int64"), i32(1)], ["INT64"], "CumsumOptions", note="int64"),
    *(
        Case(
            "FAKE_QUANT",
            [feed("fake", (50,), -2, 4)],
            table="FakeQuantOptions",
            options={"min": low, "max": high, "num_bits": bits},
            note=f"{bits} bits",
        )
        for low, high, bits in ((0.0, 2.55, 8), (-1.0, 3.0, 4), (-1.9, 1.1, 16))
    ),
    Case(
        "BUCKETIZE",
        [feed("bucket", (4, 5), -9, 9)],
        ["INT32"],
        "BucketizeOptions",
        {"boundaries": f32(-4, 0, 0.5, 6)},
    ),
    Case(
        "BUCKETIZE",
        [feed("bucket", (9,), -9, 9, "int32")],
        ["INT32"],
        "BucketizeOptions",
        {"boundaries": f32(-4, 0, 6)},
        note="int32",
    ),
    Case("LOGICAL_NOT", [feed("not", (2, 7), dtype="bool")], ["BOOL"]),
]
