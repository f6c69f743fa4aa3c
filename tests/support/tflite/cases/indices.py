"""Gathering, scattering, reductions, sorting and generation."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.tflite.cases import Case, Given, f32, feed, i32, numbers

_REDUCTIONS = ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")


def _gathers() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "bool"):
        for axis in (0, 1, -1):
            data = feed(f"g{dtype}", (3, 4, 5), -9, 9, dtype)
            yield Case(
                "GATHER",
                [data, i32([2, 0, 1, 2])],
                [dtype.upper()],
                "GatherOptions",
                {"axis": axis},
                note=f"{dtype} axis {axis}",
            )
        yield Case(
            "GATHER_ND",
            [feed(f"n{dtype}", (3, 4, 5), -9, 9, dtype), i32([[2, 0], [0, 3]])],
            [dtype.upper()],
            note=dtype,
        )
    for dtype in ("int8", "uint8"):
        data = feed(f"g{dtype}", (3, 4), 0, 100, dtype)
        yield Case(
            "GATHER",
            [data, i32(1, 0)],
            [dtype.upper()],
            "GatherOptions",
            {"axis": 1},
            note=dtype,
            scale=0.5,
            zero_point=9,
        )
    yield Case("GATHER", [feed("g", (4, 5)), Given(i32([[1, 0], [3, 3]]))], table="GatherOptions", note="run time")
    yield Case("GATHER", [feed("g", (4, 5)), i32(2)], table="GatherOptions", options={"axis": 1}, note="number")
    batched = [feed("g", (2, 4, 5)), Given(i32([[1, 0], [3, 3]]))]
    yield Case("GATHER", batched, table="GatherOptions", options={"axis": 1, "batch_dims": 1}, note="per batch")
    for axis, indices in ((2, i32([[1, 0], [3, 3]])), (3, i32([[[1, 0]], [[3, 3]]])), (2, i32([1, 2]))):
        operands = [feed("g", (2, 3, 4, 5)), Given(indices)]
        options = {"axis": axis, "batch_dims": 1}
        yield Case("GATHER", operands, table="GatherOptions", options=options, note=f"per batch {axis} {indices.ndim}")
    yield Case("GATHER_ND", [feed("g", (3, 4, 5)), Given(i32([[[1, 0, 2]], [[2, 3, 4]]]))], note="run time")
    yield Case("EMBEDDING_LOOKUP", [Given(i32(2, 0, 1, 1)), numbers("table", (4, 6))])
    for axis in (-1, 0, 1):
        operands = [Given(i32([2, 0, 5])), i32(4), f32(3), f32(-1)]
        yield Case("ONE_HOT", operands, table="OneHotOptions", options={"axis": axis}, note=f"axis {axis}")
    yield Case(
        "ONE_HOT",
        [Given(i32([[1], [0]])), i32(3), i32(5), i32(0)],
        ["INT32"],
        "OneHotOptions",
        {"axis": -1},
        note="int32",
    )


def _scatters() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64"):
        updates = feed(f"s{dtype}", (4,), -9, 9, dtype)
        yield Case("SCATTER_ND", [i32([[4], [3], [1], [7]]), updates, i32([8])], [dtype.upper()], note=dtype)
        values = feed(f"v{dtype}", (3,), -9, 9, dtype)
        default = numbers("d", (), 5, 5, dtype)
        yield Case(
            "SPARSE_TO_DENSE",
            [i32([[0, 1], [1, 2], [2, 0]]), i32(3, 4), values, default],
            [dtype.upper()],
            "SparseToDenseOptions",
            note=dtype,
        )
    yield Case("SCATTER_ND", [i32([[1], [1]]), feed("rows", (2, 3)), i32(3, 3)], note="rows that meet")
    yield Case(
        "SPARSE_TO_DENSE", [i32(1, 3), i32([5]), Given(f32(7)), f32(0)], table="SparseToDenseOptions", note="one value"
    )
    for start in ((0, 0, 0), (1, 1, 2), (9, -3, 1)):
        operands = [feed("operand", (3, 4, 5)), feed("update", (2, 2, 5)), i32(*start)]
        yield Case("DYNAMIC_UPDATE_SLICE", operands, note=str(start))
    yield Case(
        "DYNAMIC_UPDATE_SLICE",
        [feed("o", (4, 3), -9, 9, "int32"), feed("u", (1, 2), -9, 9, "int32"), i32(2, 1)],
        ["INT32"],
        note="int32",
    )
    for dtype in ("float32", "int32"):
        data, segments = feed(f"seg{dtype}", (5, 3), -5, 5, dtype), i32(0, 2, 0, 3, 2)
        yield Case("SEGMENT_SUM", [data, i32(0, 0, 1, 2, 2)], [dtype.upper()], note=dtype)
        for op in ("SUM", "PROD", "MAX", "MIN"):
            yield Case(f"UNSORTED_SEGMENT_{op}", [data, segments, i32(4)], [dtype.upper()], note=dtype)
            if dtype == "float32":
                yield Case(f"UNSORTED_SEGMENT_{op}", [feed("s", (6,)), i32(2, 1, 0, 2, 2, -1), i32(3)], note="left out")


def _reductions() -> Iterator[Case]:
    for op in _REDUCTIONS:
        for axes in ((0,), (1, 2), (-1,), (0, 1, 2, 3)):
            for keep in (False, True):
                data = feed(f"{op}", (2, 3, 4, 2), -2, 2)
                note = f"{axes} {keep}"
                yield Case(
                    op, [data, i32(*axes).reshape(-1)], table="ReducerOptions", options={"keep_dims": keep}, note=note
                )
    for op in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        for dtype in ("int32", "int64"):
            yield Case(
                op,
                [feed(f"{op}{dtype}", (3, 4), -5, 5, dtype), i32([1])],
                [dtype.upper()],
                "ReducerOptions",
                note=dtype,
            )
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        for keep in (False, True):
            data = feed(f"{op}", (3, 2, 2), dtype="bool")
            yield Case(op, [data, i32([1])], ["BOOL"], "ReducerOptions", {"keep_dims": keep}, note=str(keep))
    for op, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        for axis in (0, 1, -1):
            yield Case(op, [feed(op, (3, 4, 5)), i32(axis)], ["INT32"], table, {"output_type": 2}, note=f"axis {axis}")
        yield Case(
            op,
            [feed(op, (3, 4), -3, 3, "int32"), i32(1)],
            ["INT64"],
            table,
            {"output_type": 4},
            note="int64, ties",
        )
        yield Case(
            op,
            [feed(op, (3, 4), -30, 30, "int8"), i32(1)],
            ["INT32"],
            table,
            {"output_type": 2},
            note="int8",
            scale=0.5,
        )
    for k in (1, 3):
        yield Case("TOPK_V2", [feed("topk", (3, 7)), i32(k)], ["FLOAT32", "INT32"], note=f"k {k}")
    yield Case("TOPK_V2", [feed("topk", (3, 7), -50, 50, "int32"), i32(2)], ["INT32", "INT32"], note="int32")


def _generators() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "bool"):
        yield Case("FILL", [i32(2, 3), feed("fill", (), -9, 9, dtype)], [dtype.upper()], note=dtype)
    yield Case("RANGE", [f32(1), f32(4), f32(0.5)], note="float32")
    yield Case("RANGE", [i32(9), i32(-2), i32(-3)], ["INT32"], note="int32")
    yield Case("BROADCAST_ARGS", [i32(2, 1, 3), i32(4, 1)], ["INT32"])
    for shape in ((4,), (2, 3)):
        yield Case("MATRIX_DIAG", [feed("diag", shape)], note=str(shape))
    yield Case("MATRIX_DIAG", [feed("diag", (3,), -9, 9, "int32")], ["INT32"], note="int32")
    for shape, size in (((3, 3), 3), ((2, 3, 4), 3), ((2, 4, 3), 3)):
        yield Case("MATRIX_SET_DIAG", [feed("m", shape), feed("d", (*shape[:-2], size))], note=str(shape))
    yield Case(
        "MATRIX_SET_DIAG",
        [feed("m", (2, 2), -9, 9, "int32"), feed("d", (2,), -9, 9, "int32")],
        ["INT32"],
        note="int32",
    )
    options = {"seq_dim": 1, "batch_dim": 0}
    for dtype in ("float32", "int32", "int64"):
        data = feed(f"seq{dtype}", (3, 4, 2), -9, 9, dtype)
        yield Case(
            "REVERSE_SEQUENCE", [data, i32(4, 0, 2)], [dtype.upper()], "ReverseSequenceOptions", options, note=dtype
        )
    options = {"seq_dim": 0, "batch_dim": 2}
    yield Case(
        "REVERSE_SEQUENCE",
        [feed("seq", (4, 2, 3)), i32(1, 3, 4)],
        table="ReverseSequenceOptions",
        options=options,
        note="time first",
    )
    yield Case("WHERE", [feed("where", (3, 4), dtype="bool")], ["INT64"])
    yield Case("WHERE", [feed("where", (9,), -1, 1, "int32")], ["INT64"], note="int32")
    yield Case("BITCAST", [f32(1.5, -2)], ["INT32"])


CASES = [*_gathers(), *_scatters(), *_reductions(), *_generators()]
