"""2-D and 3-D convolution, pooling and resizing, with padding, strides, dilations and activations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tests.support.tflite.cases import Case, f32, feed, i32, numbers

_SAME, _VALID = 0, 1


def _weights(name: str, shape: tuple[int, ...]) -> Any:
    return numbers(name, shape, -1, 1)


def _convolutions() -> Iterator[Case]:
    for padding, stride, dilation, activation in itertools.product((_SAME, _VALID), (1, 2), (1, 2), (0, 1, 2, 3)):
        if stride > 1 and dilation > 1:
            continue  # no kernel supports both
        common = {"padding": padding, "stride_h": stride, "stride_w": stride, "fused_activation_function": activation}
        common |= {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
        note = f"{'SAME' if padding == _SAME else 'VALID'} {stride} {dilation} {activation}"
        x = feed("plane", (2, 7, 8, 4), -1, 1)
        full = [x, _weights("full", (6, 3, 3, 4)), numbers("bias", (6,), -1, 1)]
        yield Case("CONV_2D", full, table="Conv2DOptions", options=common, note=note, atol=4e-6)
        deep = [x, _weights("deep", (1, 3, 2, 4)), numbers("bias", (4,), -1, 1)]
        options = {**common, "depth_multiplier": 1}
        yield Case("DEPTHWISE_CONV_2D", deep, table="DepthwiseConv2DOptions", options=options, note=note, atol=4e-6)
    common = {"padding": _SAME, "stride_h": 1, "stride_w": 2}
    x = feed("plane", (1, 7, 8, 4), -1, 1)
    yield Case(
        "CONV_2D",
        [x, _weights("grouped", (6, 3, 1, 2)), numbers("bias", (6,))],
        table="Conv2DOptions",
        options=common,
        note="groups",
    )
    yield Case(
        "CONV_2D",
        [x, _weights("one", (3, 1, 1, 4)), numbers("bias", (3,))],
        table="Conv2DOptions",
        options=common,
        note="1x1",
    )
    multiplied = [x, _weights("multiplied", (1, 3, 3, 12)), numbers("bias", (12,))]
    options = {**common, "depth_multiplier": 3, "stride_h": 2}
    yield Case("DEPTHWISE_CONV_2D", multiplied, table="DepthwiseConv2DOptions", options=options, note="multiplier 3")


def _transpose_convs() -> Iterator[Case]:
    for padding, stride, (height, width) in (
        (_SAME, 1, (4, 5)),
        (_SAME, 2, (8, 10)),
        (_SAME, 2, (7, 9)),
        (_VALID, 1, (6, 7)),
        (_VALID, 2, (9, 11)),
    ):
        operands = [i32(2, height, width, 3), _weights("tr", (3, 3, 3, 2)), feed("small", (2, 4, 5, 2), -1, 1)]
        options = {"padding": padding, "stride_h": stride, "stride_w": stride}
        note = f"{padding} {stride} {height}"
        yield Case("TRANSPOSE_CONV", operands, table="TransposeConvOptions", options=options, note=note, atol=4e-6)
    biased = [*operands, numbers("bias", (3,))]
    options = {"padding": _VALID, "stride_h": 2, "stride_w": 2, "fused_activation_function": 1}
    yield Case(
        "TRANSPOSE_CONV",
        biased,
        table="TransposeConvOptions",
        options=options,
        note="bias and RELU",
        version=4,
        atol=4e-6,
    )


def _pools() -> Iterator[Case]:
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        for padding, stride, (height, width), activation in itertools.product(
            (_SAME, _VALID), (1, 2, 3), ((2, 2), (3, 2)), (0, 1)
        ):
            options = {
                "padding": padding,
                "stride_h": stride,
                "stride_w": stride,
                "filter_height": height,
                "filter_width": width,
            }
            note = f"{padding} {stride} {height}x{width} {activation}"
            options["fused_activation_function"] = activation
            yield Case(op, [feed("pooled", (2, 7, 8, 3))], table="Pool2DOptions", options=options, note=note)
    options = {"padding": _VALID, "stride_h": 1, "stride_w": 1, "filter_height": 7, "filter_width": 8}
    yield Case(
        "AVERAGE_POOL_2D",
        [feed("pooled", (2, 7, 8, 3))],
        table="Pool2DOptions",
        options=options,
        note="whole plane",
    )


def _resizes() -> Iterator[Case]:
    for op, table in (
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    ):
        for size in ((8, 10), (4, 5), (7, 13), (3, 2), (1, 1), (12, 15)):
            for flag in ("", "align_corners", "half_pixel_centers"):
                options = {flag: True} if flag else {}
                version = 3 if flag == "half_pixel_centers" else 1
                data = feed("resized", (2, 4, 5, 3))
                note = f"{size} {flag}"
                yield Case(op, [data, i32(*size)], table=table, options=options, note=note, version=version, atol=4e-6)
    for dtype in ("int32", "int8", "uint8"):
        if dtype == "int32":
            continue
        data = feed(f"nearest{dtype}", (1, 3, 4, 2), 0, 100, dtype)
        yield Case(
            "RESIZE_NEAREST_NEIGHBOR",
            [data, i32(6, 8)],
            [dtype.upper()],
            "ResizeNearestNeighborOptions",
            note=dtype,
            scale=0.5,
            zero_point=7,
            version=2,
        )


def _volumes() -> Iterator[Case]:
    for padding, stride, dilation in ((_SAME, 1, 1), (_SAME, 2, 1), (_VALID, 1, 1), (_VALID, 2, 1), (_VALID, 1, 2)):
        options = {"padding": padding, "stride_d": stride, "stride_h": 1, "stride_w": stride}
        options |= {f"dilation_{axis}_factor": dilation for axis in "dhw"}
        note = f"{padding} {stride} {dilation}"
        x = feed("volume", (2, 5, 6, 7, 2), -1, 1)
        operands = [x, _weights("volume weights", (2, 3, 2, 2, 3)), numbers("bias", (3,))]
        yield Case("CONV_3D", operands, table="Conv3DOptions", options=options, note=note, atol=4e-6)
    for padding, stride, target in (
        (_SAME, 2, (6, 4, 8)),
        (_VALID, 1, (4, 6, 5)),
        (_VALID, 2, (6, 6, 9)),
        (_SAME, 1, (3, 4, 4)),
    ):
        options = {"padding": padding, "stride_d": stride, "stride_h": 1, "stride_w": stride}
        options |= {f"dilation_{axis}_factor": 1 for axis in "dhw"}
        operands = [
            i32(1, *target, 2),
            _weights("vt", (2, 3, 2, 2, 3)),
            feed("small volume", (1, 3, 4, 4, 3), -1, 1),
        ]
        yield Case(
            "CONV_3D_TRANSPOSE", operands, table="Conv3DOptions", options=options, note=f"{padding} {stride}", atol=4e-6
        )
    yield Case("DILATE", [feed("dilate", (2, 3, 4)), i32(2, 1, 3), f32(-7)])
    yield Case("DILATE", [feed("dilate", (3,), -9, 9, "int32"), i32([4]), i32(5)], ["INT32"], note="int32")


def _products() -> Iterator[Case]:
    for activation in (0, 1, 2, 3):
        operands = [feed("fc", (3, 7)), numbers("w", (5, 7), -1, 1), numbers("b", (5,))]
        options = {"fused_activation_function": activation}
        yield Case(
            "FULLY_CONNECTED", operands, table="FullyConnectedOptions", options=options, note=str(activation), atol=4e-6
        )
    operands = [feed("fc", (2, 3, 7)), numbers("w", (5, 7), -1, 1), None]
    for keep in (False, True):
        yield Case(
            "FULLY_CONNECTED",
            operands,
            table="FullyConnectedOptions",
            options={"keep_num_dims": keep},
            note=f"keep {keep}",
            atol=4e-6,
        )
    operands = [feed("fc", (3, 7)), feed("run time weights", (5, 7)), None]
    yield Case("FULLY_CONNECTED", operands, table="FullyConnectedOptions", note="run time weights", atol=4e-6)
    for left, right in (((2, 3, 4), (2, 4, 5)), ((3, 4), (4, 5)), ((2, 1, 3, 4), (1, 3, 4, 5)), ((2, 3, 4), (1, 4, 5))):
        for adj_x, adj_y in itertools.product((False, True), (False, True)):
            a = (*left[:-2], left[-1], left[-2]) if adj_x else left
            b = (*right[:-2], right[-1], right[-2]) if adj_y else right
            options = {"adj_x": adj_x, "adj_y": adj_y}
            note = f"{left} {right} {adj_x} {adj_y}"
            yield Case(
                "BATCH_MATMUL",
                [feed("a", a), feed("b", b)],
                table="BatchMatMulOptions",
                options=options,
                note=note,
                atol=4e-6,
            )
    yield Case(
        "BATCH_MATMUL",
        [feed("a", (2, 3, 4)), numbers("b", (4, 5))],
        table="BatchMatMulOptions",
        note="constant",
        atol=4e-6,
    )


def _halves() -> Iterator[Case]:
    """Float16 weights are converted by DEQUANTIZE."""
    weights = numbers("half", (5, 7), -1, 1, "float16")
    yield Case("DEQUANTIZE", [weights], note="float16 constant")


CASES = [*_convolutions(), *_transpose_convs(), *_pools(), *_resizes(), *_volumes(), *_products(), *_halves()]
