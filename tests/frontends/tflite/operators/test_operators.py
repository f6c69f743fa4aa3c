"""One operator per model, against values worked out by hand (or by a NumPy formula, as noted)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.support.tflite.cases.stablehlo import WITHOUT_KERNEL
from tests.support.tflite.hand_cases import CASES, SQUARE, Case, f32, i32, subgraph_of
from tests.support.tflite.models import O, S, T, graph_of, run, single
from tpuconvert.schema.errors import UnsupportedError


@each("case", CASES)
def test_value(tmp_path: Path, case: Case) -> None:
    graph = graph_of(tmp_path, subgraph_of(case))
    (y,) = run(graph, *case.x)
    expected = np.asarray(case.y)
    assert y.dtype.name == case.type.lower()
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=0, atol=case.atol)


def test_what_has_no_kernel_has_a_case() -> None:
    assert WITHOUT_KERNEL - {case.op.removeprefix("STABLEHLO_") for case in CASES} == {"REDUCE", "SORT"}


def test_outputs_of_splits(tmp_path: Path) -> None:
    x = f32([[1, 2, 3, 4]])
    halves = [T(shape=(1, 2))] * 2
    equal = single("SPLIT", [T(data=i32(1)), T(shape=(1, 4))], halves, "SplitOptions", num_splits=2)
    assert [y.tolist() for y in run(graph_of(tmp_path, equal), x)] == [[[1, 2]], [[3, 4]]]
    sizes = [T(shape=(1, 4)), T(data=i32(1, -1)), T(data=i32(-1))]
    uneven = single("SPLIT_V", sizes, halves, "SplitVOptions", num_splits=2)
    assert [y.tolist() for y in run(graph_of(tmp_path, uneven), x)] == [[[1]], [[2, 3, 4]]]
    unpacked = single("UNPACK", [T(shape=(1, 4))], [T(shape=(1,))] * 4, "UnpackOptions", num=4, axis=1)
    assert [y.tolist() for y in run(graph_of(tmp_path, unpacked), x)] == [[1], [2], [3], [4]]
    best = single("TOPK_V2", [T(shape=(1, 4)), T(data=i32(2))], [T(shape=(1, 2)), T(shape=(1, 2), type="INT32")])
    assert [y.tolist() for y in run(graph_of(tmp_path, best), x)] == [[[4, 3]], [[3, 2]]]


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        (O("STABLEHLO_ADD", [0, 1], [2]), {"dimensions": [1]}, [6, 15]),
        (O("STABLEHLO_MAXIMUM", [1, 0], [2]), {"dimensions": [0]}, [4, 5, 6]),
    ],
)
def test_reduction_by_a_body(tmp_path: Path, body: O, options: dict[str, Any], expected: list[float]) -> None:
    first = 0.0 if body.name == "STABLEHLO_ADD" else -math.inf
    main = single(
        "STABLEHLO_REDUCE", [T(shape=(2, 3)), T(data=f32(first))], [T(shape=(len(expected),))],
        "StablehloReduceOptions", body_subgraph_index=1, **options,
    )  # fmt: skip
    called = S([T("a", ()), T("b", ()), T("c", ())], [body], [0, 1], [2])
    assert run(graph_of(tmp_path, main, called), f32([[1, 2, 3], [4, 5, 6]]))[0].tolist() == expected


@pytest.mark.parametrize(
    ("direction", "operands", "expected"), [(5, [0, 1], [1, 2, 3]), (3, [0, 1], [3, 2, 1]), (5, [1, 0], [3, 2, 1])]
)
def test_sorting_by_a_comparator(tmp_path: Path, direction: int, operands: list[int], expected: list[float]) -> None:
    main = single(
        "STABLEHLO_SORT", [T(shape=(3,))], [T(shape=(3,))], "StablehloSortOptions",
        dimension=0, comparator_subgraph_index=1,
    )  # fmt: skip
    options = {"comparison_direction": direction}
    compare = O("STABLEHLO_COMPARE", operands, [2], "StablehloCompareOptions", options)
    called = S([T("a", ()), T("b", ()), T("c", (), "BOOL")], [compare], [0, 1], [2])
    assert run(graph_of(tmp_path, main, called), f32(2, 3, 1))[0].tolist() == expected


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (
            Case("CONV_2D", [None, f32([1.0]).reshape(1, 1, 1, 1)], [SQUARE], SQUARE, "Conv2DOptions"),
            "stride .* at least 1",
        ),
        (Case("CONV_2D", [None, f32([[1]])], [SQUARE], SQUARE, "Conv2DOptions"), "must have rank 4"),
        (Case("CONV_2D", [None, np.ones((1, 1, 1, 3), np.float32)], [SQUARE], SQUARE, "Conv2DOptions"), "do not fit"),
        (Case("RESHAPE", [None, None], [f32(1, 2), i32(2, 1)], [[1], [2]]), "depends on the model's inputs"),
        (Case("RESHAPE", [None, i32(3)[None]], [f32(1, 2)], [1, 2, 3]), "does not fit"),
        (Case("TRANSPOSE", [None, i32(0, 0)], [f32([[1]])], [[1]]), "order"),
        (Case("GATHER", [None, i32(3)[None]], [f32(1, 2)], [1], "GatherOptions"), "outside the extent 2"),
        (
            Case("GATHER", [None, i32([[0]])], [f32([[[1, 2]]])], [1], "GatherOptions", {"axis": 0, "batch_dims": 1}),
            "batch_dims=1",
        ),
        (Case("STABLEHLO_AND", [None, i32(1)], [i32(1)], [1]), "bits of INT32"),
        (Case("STRIDED_SLICE", [None, i32(1)[None], i32(2)[None], i32(0)[None]], [f32(1, 2)], [1]), "a stride is 0"),
        (Case("RESIZE_BILINEAR", [None, i32(0, 3)], [SQUARE], SQUARE, "ResizeBilinearOptions"), "size"),
        (Case("PAD", [None, i32([[-1, 0]])], [f32(1, 2)], [1]), "paddings"),
        (Case("SOFTMAX", [], [], [1]), "lacks its input 0"),
        (
            Case("CONCATENATION", [None], [f32(1, 2)], [1, 2], "ConcatenationOptions", {"axis": 4}),
            "axis 4 is outside rank 1",
        ),
    ],
    ids=lambda value: str(value),
)
def test_refused(tmp_path: Path, case: Case, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says) as caught:
        graph_of(tmp_path, subgraph_of(case))
    assert [(problem.op, problem.node) for problem in caught.value.problems] == [(case.op, "out0")]
