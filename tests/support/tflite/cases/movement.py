"""Data movement operators in every type: reshape, slice, concat, padding, gather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.tflite.cases import Case, Given, f32, feed, i32, numbers

_PLAIN = ("float32", "int32", "int64", "bool")
_SMALL = ("int8", "uint8", "int16")
_TYPES = (*_PLAIN, *_SMALL)


def _data(name: str, shape: tuple[int, ...], dtype: str) -> Given:
    low, high = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-3000, 3000)}.get(dtype, (-9, 9))
    return feed(f"{name}{dtype}", shape, low, high, dtype)


def _each(
    op: str,
    shape: tuple[int, ...],
    *rest: Any,
    types: tuple[str, ...] = _TYPES,
    results: int = 1,
    table: str = "",
    note: str = "",
    first: tuple[Any, ...] = (),
    options: Mapping[str, Any] | None = None,
    copies: int = 1,
    version: int = 1,
) -> Iterator[Case]:
    """One case per type; 8-bit and 16-bit ones are quantized."""
    for dtype in types:
        scale, zero = (0.25, {"uint8": 120, "int8": -5}.get(dtype, 0)) if dtype in _SMALL else (0.0, 0)
        data = [_data(f"{op}{copy}", shape, dtype) for copy in range(copies)]
        inputs = [*first, *data, *rest]
        outputs = [dtype.upper()] * results
        yield Case(op, inputs, outputs, table, options or {}, 2e-6, f"{note} {dtype}".strip(), version, scale, zero)


def _masks(begin: int = 0, end: int = 0, ellipsis: int = 0, new: int = 0, shrink: int = 0) -> dict[str, int]:
    return {
        **{"begin_mask": begin, "end_mask": end, "ellipsis_mask": ellipsis},
        **{"new_axis_mask": new, "shrink_axis_mask": shrink},
    }


def _slices() -> Iterator[Case]:
    slices = {
        "plain": ((0, 1, 0), (2, 3, 4), (1, 1, 2), _masks()),
        "falling": ((-1, 2, 3), (0, 0, 0), (-1, -1, -2), _masks(end=7)),
        "masks": ((5, 1, 2), (9, 2, 9), (1, 1, 1), _masks(begin=1, end=4)),
        "shrink": ((1, 0, -1), (2, 3, 0), (1, 1, 1), _masks(shrink=5)),
    }
    for note, (begin, end, strides, masks) in slices.items():
        rest = (i32(*begin), i32(*end), i32(*strides))
        yield from _each("STRIDED_SLICE", (2, 3, 4), *rest, table="StridedSliceOptions", options=masks, note=note)
    ellipsis = (i32(0, 1), i32(0, 3), i32(1, 1))
    options = _masks(ellipsis=1)
    yield from _each(
        "STRIDED_SLICE",
        (2, 3, 4),
        *ellipsis,
        types=("float32",),
        table="StridedSliceOptions",
        options=options,
        note="ellipsis",
    )
    options = _masks(new=1, end=6)
    rest = (i32(0, 1, 0), i32(1, 9, 9), i32(1, 1, 1))
    yield from _each(
        "STRIDED_SLICE",
        (3, 4),
        *rest,
        types=("float32",),
        table="StridedSliceOptions",
        options=options,
        note="new axis",
    )
    yield from _each("SLICE", (2, 3, 4), i32(0, 1, 2), i32(2, -1, 1))
    yield from _each(
        "SPLIT",
        (2, 6),
        first=(i32(1),),
        results=3,
        table="SplitOptions",
        options={"num_splits": 3},
        types=("float32", "int32", *_SMALL),
    )
    yield from _each(
        "SPLIT_V",
        (2, 6),
        i32(1, 2, 3),
        i32(-1),
        results=3,
        table="SplitVOptions",
        options={"num_splits": 3},
        types=("float32", "int32", "int64", *_SMALL),
    )
    for axis in (0, -1):
        yield from _each(
            "UNPACK",
            (3, 3),
            results=3,
            table="UnpackOptions",
            options={"num": 3, "axis": axis},
            note=f"axis {axis}",
            types=("float32", "int32", "bool", "int8", "uint8", "int16"),
        )


def _shapes() -> Iterator[Case]:
    for target in ((4, -1), (2, 3, 4, 1), (24,)):
        yield from _each(
            "RESHAPE",
            (2, 3, 4),
            i32(*target).reshape(-1),
            table="ReshapeOptions",
            options={"new_shape": target},
            note=str(target),
        )
    for axes in ((0,), (0, 3), ()):
        yield from _each(
            "SQUEEZE",
            (1, 3, 2, 1),
            table="SqueezeOptions",
            options={"squeeze_dims": axes} if axes else {},
            note=str(axes),
        )
    for axis in (0, 1, -1):
        yield from _each("EXPAND_DIMS", (2, 3), i32(axis), note=f"axis {axis}")
    for order in ((1, 0, 2), (2, 1, 0), (0, 1, 2)):
        yield from _each(
            "TRANSPOSE", (2, 3, 4), i32(*order), note=str(order), types=("float32", "int32", "int64", "bool", *_SMALL)
        )
    yield from _each("TRANSPOSE", (1, 3, 4, 5), i32(0, 3, 1, 2), note="nchw")
    for axis in (0, 1, -1):
        yield from _each(
            "CONCATENATION",
            (2, 3, 4),
            copies=3,
            table="ConcatenationOptions",
            options={"axis": axis},
            note=f"axis {axis}",
        )
        yield from _each(
            "PACK",
            (2, 3),
            copies=2,
            table="PackOptions",
            options={"axis": axis, "values_count": 2},
            note=f"axis {axis}",
            types=("float32", "int32", "int64", "int8", "uint8", "int16"),
        )
    yield Case(
        "CONCATENATION",
        [feed("a", (2, 3)), numbers("b", (2, 1))],
        table="ConcatenationOptions",
        options={"axis": 1},
        note="with a constant",
    )
    yield from _each("TILE", (2, 3), i32(2, 3))
    yield from _each("BROADCAST_TO", (2, 1, 3), i32(2, 4, 3), version=2)
    yield from _each("BROADCAST_TO", (3,), i32(2, 3), note="rank", version=2)
    yield from _each(
        "REVERSE_V2",
        (2, 3, 4),
        i32(2).reshape(1),
        types=("float32", "int32", "int64", "bool", "int16", "uint8"),
        note="last",
    )
    yield Case("SHAPE", [feed("shape", (2, 3, 4))], ["INT32"], "ShapeOptions", {"out_type": 2})
    yield Case("SHAPE", [feed("shape", (2, 3, 4))], ["INT64"], "ShapeOptions", {"out_type": 4}, note="int64")
    yield Case("RANK", [feed("rank", (2, 3, 4))], ["INT32"])


def _paddings() -> Iterator[Case]:
    margins = i32([[1, 0], [0, 2], [3, 1]])
    yield from _each("PAD", (2, 3, 4), margins, types=("float32", "int32", "int64", *_SMALL))
    yield Case("PADV2", [feed("pad", (2, 3, 4)), margins, f32(-1.5)])
    yield Case("PADV2", [feed("pad", (2, 3, 4), -9, 9, "int32"), margins, i32(7)], ["INT32"], note="int32")
    yield Case(
        "PADV2",
        [_data("pad", (2, 3, 4), "int8"), margins, numbers("pv", (), 5, 5, "int8")],
        ["INT8"],
        note="int8",
        scale=0.5,
        zero_point=3,
    )
    for mode in (0, 1):
        yield from _each(
            "MIRROR_PAD",
            (3, 4),
            i32([[1, 2], [2, 1]]),
            table="MirrorPadOptions",
            options={"mode": mode},
            note=f"mode {mode}",
            types=("float32", "int32", "int64", "int8"),
        )


def _blocks() -> Iterator[Case]:
    types = ("float32", "int32", "int64", "int8", "uint8")
    for block in (2, 3):
        yield from _each(
            "SPACE_TO_DEPTH",
            (2, 6, 6, 3),
            table="SpaceToDepthOptions",
            options={"block_size": block},
            note=str(block),
            types=types,
        )
        yield from _each(
            "DEPTH_TO_SPACE",
            (2, 2, 3, 18 if block == 3 else 12),
            table="DepthToSpaceOptions",
            options={"block_size": block},
            note=str(block),
            types=types,
        )
    yield from _each("SPACE_TO_BATCH_ND", (2, 4, 6, 3), i32(2, 3), i32([[0, 0], [0, 0]]), types=types)
    yield from _each("SPACE_TO_BATCH_ND", (1, 5, 4, 2), i32(3, 2), i32([[1, 0], [2, 0]]), types=types, note="padded")
    yield from _each("SPACE_TO_BATCH_ND", (2, 6, 3), i32(2).reshape(1), i32([[1, 1]]), types=types, note="rank 3")
    yield from _each("BATCH_TO_SPACE_ND", (12, 2, 2, 3), i32(2, 3), i32([[0, 0], [0, 0]]), types=types)
    yield from _each("BATCH_TO_SPACE_ND", (6, 3, 2, 2), i32(3, 2), i32([[1, 0], [0, 1]]), types=types, note="cropped")
    yield from _each("BATCH_TO_SPACE_ND", (4, 3, 2), i32(2).reshape(1), i32([[1, 0]]), types=types, note="rank 3")


CASES = [*_slices(), *_shapes(), *_paddings(), *_blocks()]
