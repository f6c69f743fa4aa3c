"""StableHLO operators. LiteRT runs some of them; the others are in ``test_operators.py`` with values by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.support.tflite.cases import Case, Given, f32, feed, i32
from tests.support.tflite.models import O, S, T

WITHOUT_KERNEL = {
    *(
        "ABS",
        "AND",
        "BROADCAST_IN_DIM",
        "CLAMP",
        "COMPARE",
        "CONCATENATE",
        "CONVERT",
        "CONVOLUTION",
        "COSINE",
        "DIVIDE",
    ),
    *(
        "DOT_GENERAL",
        "DYNAMIC_SLICE",
        "DYNAMIC_UPDATE_SLICE",
        "EXPONENTIAL",
        "FLOOR",
        "LOG",
        "LOGISTIC",
        "NEGATE",
        "OR",
    ),
    *("POWER", "REDUCE", "REMAINDER", "RESHAPE", "RSQRT", "SELECT", "SLICE", "SORT", "SUBTRACT", "TANH", "TRANSPOSE"),
    *("CBRT", "IOTA", "SHIFT_LEFT"),
}
"""Operators that LiteRT does not execute."""


def body(op: str, dtype: str = "FLOAT32", table: str = "", **options: int) -> S:
    """A subgraph with a binary operator."""
    operator = O(op, [0, 1], [2], table, options)
    return S([T("a", (), dtype), T("b", (), dtype), T("c", (), dtype)], [operator], [0, 1], [2], op.lower())


def _element_wise() -> Iterator[Case]:
    for op in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
        for dtype in ("float32", "int32"):
            operands = [
                feed(f"{op}{dtype}", (3, 4), -9, 9, dtype),
                feed(f"{op}{dtype}b", (3, 4), -9, 9, dtype),
            ]
            yield Case(f"STABLEHLO_{op}", operands, [dtype.upper()], note=dtype)


def _windows() -> Iterator[Case]:
    for function, first in (("ADD", 0.0), ("MULTIPLY", 1.0), ("MAXIMUM", -3.4028234663852886e38)):
        for spread, dilation, margin in ((1, 1, 0), (2, 1, 1), (1, 2, 2)):
            options = {
                "window_dimensions": [2, 3],
                "window_strides": [1, 2],
                "base_dilations": [spread, 1],
                "window_dilations": [1, dilation],
                "padding": [margin, 0, 0, margin],
                "body_subgraph_index": 1,
            }
            operands = [feed("window", (4, 9), -2, 2), f32(first)]
            note = f"{function} {spread} {dilation} {margin}"
            yield Case(
                "STABLEHLO_REDUCE_WINDOW",
                operands,
                table="StablehloReduceWindowOptions",
                options=options,
                note=note,
                subgraphs=[body(f"STABLEHLO_{function}")],
                atol=4e-6,
            )
    for number, first in ((1, 0.0), (1, 5.0), (2, 1.0), (2, 0.5), (3, 1.0), (3, 3.4e38), (4, -3.4e38), (4, 0.0)):
        operands = [feed("reduced", (5, 6), -2, 2), f32(first), *(_i64(*n) for n in ((2, 3), (1, 2), (2, 1)))]
        options = {"reduce_function": number}
        note = f"{number} {first}"
        yield Case("REDUCE_WINDOW", operands, table="ReduceWindowOptions", options=options, note=note, atol=4e-6)


def _i64(*values: int) -> Any:
    return np.asarray(values, np.int64)


def _indices() -> Iterator[Case]:
    gathers = {
        "rows": (
            (3, 4),
            [[2], [0], [7]],
            {
                "offset_dims": [1],
                "collapsed_slice_dims": [0],
                "start_index_map": [0],
                "index_vector_dim": 1,
                "slice_sizes": [1, 4],
            },
        ),
        "boxes": (
            (4, 5),
            [[1, 2], [0, 9]],
            {"offset_dims": [1, 2], "start_index_map": [0, 1], "index_vector_dim": 1, "slice_sizes": [2, 3]},
        ),
        "columns": (
            (3, 4),
            [[1], [3]],
            {
                "offset_dims": [0],
                "collapsed_slice_dims": [1],
                "start_index_map": [1],
                "index_vector_dim": 1,
                "slice_sizes": [3, 1],
            },
        ),
    }
    results = {"rows": (3, 4), "boxes": (2, 2, 3), "columns": (3, 2)}
    for note, (shape, index, options) in gathers.items():
        yield Case(
            "STABLEHLO_GATHER",
            [feed(f"data{note}", shape), i32(index)],
            [("FLOAT32", results[note])],
            "StablehloGatherOptions",
            options=options,
            note=note,
        )
        if note != "boxes":
            operands = [feed(f"data{note}", shape), Given(i32(index))]
            yield Case(
                "STABLEHLO_GATHER",
                operands,
                [("FLOAT32", results[note])],
                "StablehloGatherOptions",
                options=options,
                note=f"{note} at run time",
            )
    options = {
        "update_window_dims": [1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
        "update_computation_subgraph_index": 1,
    }
    for function in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
        operands = [feed("operand", (5, 3)), i32([[1], [3], [1]]), feed("updates", (3, 3))]
        yield Case(
            "STABLEHLO_SCATTER",
            operands,
            table="StablehloScatterOptions",
            options=options,
            note=function,
            subgraphs=[body(f"STABLEHLO_{function}")],
        )
    replacing = S([T("a", ()), T("b", ())], [], [0, 1], [1], "second")
    operands = [feed("operand", (5, 3)), i32([[1], [3], [4]]), feed("updates", (3, 3))]
    yield Case(
        "STABLEHLO_SCATTER",
        operands,
        table="StablehloScatterOptions",
        options=options,
        note="replace",
        subgraphs=[replacing],
    )
    for low, high, inner in (
        ((1, 0), (2, 3), (0, 0)),
        ((0, 1), (1, 0), (2, 1)),
        ((-1, 2), (1, -2), (0, 0)),
        ((-1, 0), (0, -1), (1, 2)),
    ):
        options = {"edge_padding_low": list(low), "edge_padding_high": list(high), "interior_padding": list(inner)}
        note = f"{low} {high} {inner}"
        yield Case(
            "STABLEHLO_PAD",
            [feed("pad", (3, 4)), f32(-7)],
            table="StablehloPadOptions",
            options=options,
            note=note,
        )


def _composite() -> Iterator[Case]:
    square = S([T("a", (2, 3)), T("b", (2, 3))], [O("MUL", [0, 0], [1], "MulOptions")], [0], [1], "square")
    attributes = np.frombuffer(bytes(flexbuffers.Dumps({})), np.uint8)
    options = {"name": "square", "decomposition_subgraph_index": 1, "composite_attributes": attributes}
    yield Case(
        "STABLEHLO_COMPOSITE",
        [feed("x", (2, 3))],
        table="StableHLOCompositeOptions",
        options=options,
        subgraphs=[square],
    )
    negate = S([T("a", (2, 3)), T("b", (2, 3))], [O("NEG", [0], [1])], [0], [1], "negate")
    for condition in (True, False):
        operands = [
            np.asarray(condition),
            feed("x", (2, 3)),
        ]
        yield Case(
            "IF",
            operands,
            table="IfOptions",
            options={"then_subgraph_index": 1, "else_subgraph_index": 2},
            note=str(condition),
            subgraphs=[square, negate],
        )


CASES = [*_element_wise(), *_windows(), *_indices(), *_composite()]
