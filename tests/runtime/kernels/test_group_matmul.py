"""The kernels of matmul_group_quantized.

With float activations, results have the bytes of a float matmul with the dequantized weights, which
``test_linear_float.py`` compares with the reference; with INT8 activations, they have the bytes of the reference. So
they do not depend on the number of rows, the instruction set or the threads.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.native_cases.float_graphs import evaluate, graph_of, normal, references, run
from tests.support.native_cases.random_graphs import needs_extension
from tests.support.paired import paired
from tpuconvert.runtime.native.builder.loader import available_isas, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.cast import Cast
from tpuconvert.schema.ops.matmul.matrix_mul import MatrixMul
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import F32, I8, I32, Array, DType

pytestmark = needs_extension

Operands = tuple[Array, Array, Array | None, Array | None]
OPTIONS = paired([4, 8], [16, 32, 64, 128, 256], ["none", "integer", "float"])


def operands(
    rng: np.random.Generator, op: MatmulGroupQuantized, depth: int, columns: int, zero: str, bias: bool
) -> Operands:
    """Codes, scales, zero points and bias."""
    groups = -(-depth // op.group)
    codes = rng.integers(0, 256, (columns, groups * op.group * op.bits // 8), np.uint8)
    zero_point: Array | None = None
    if zero == "integer":
        zero_point = rng.integers(0, 256, (columns, -(-groups * op.bits // 8)), np.uint8)
    if zero == "float":
        zero_point = normal(rng, columns, groups) + np.float32(8)
    return codes, normal(rng, columns, groups), zero_point, normal(rng, columns) if bias else None


def quantized(op: MatmulGroupQuantized, shape: tuple[int, ...], given: Operands) -> Graph:
    graph = graph_of([shape])
    constants = [None if array is None else graph.constant(array) for array in given]
    graph.output(graph.add(op, graph.inputs[0], *constants))
    return graph


def dequantized(op: MatmulGroupQuantized, rows: int, depth: int, given: Operands) -> Graph:
    graph = graph_of([(rows, depth)])
    codes, scale, zero, bias = given
    weight = graph.constant(np.ascontiguousarray(op.weights(codes, scale, zero, depth).T))
    more = [] if bias is None else [graph.constant(bias.reshape(1, -1))]
    graph.output(graph.add(MatrixMul(), graph.inputs[0], weight, *more))
    return graph


@pytest.mark.parametrize(("bits", "group", "zero"), OPTIONS)
def test_equals_a_float_matmul(bits: int, group: int, zero: str) -> None:
    """Depths with a partial group and a partial word, column counts with a partial panel and register."""
    op = MatmulGroupQuantized(bits, group)
    rng = np.random.default_rng(group + bits)
    for rows, depth, columns in ((1, 131, 70), (2, 1, 64), (3, 256, 1), (7, 77, 130), (8, 64, 19), (9, 300, 33)):
        given = operands(rng, op, depth, columns, zero, bias=rows % 2 == 0)
        x = normal(rng, rows, depth)
        (found,) = run(quantized(op, (rows, depth), given), [x], steps=1)
        (wanted,) = run(dequantized(op, rows, depth, given), [x])
        assert found.tobytes() == wanted.tobytes(), (rows, depth, columns)


@pytest.mark.parametrize(("bits", "activation_type"), paired([4, 8], [F32, I8]))
def test_row_does_not_depend_on_the_other_rows(bits: int, activation_type: DType) -> None:
    """A prompt that is computed in chunks gives the bytes of a single call."""
    op = MatmulGroupQuantized(bits, 32, activation_type)
    rng = np.random.default_rng(bits)
    given = operands(rng, op, 200, 83, "integer", bias=True)
    x = normal(rng, 40, 200)
    (whole,) = run(quantized(op, x.shape, given), [x])
    for size in (1, 2, 3, 5, 8, 9, 16, 31):
        parts = [x[start : start + size] for start in range(0, len(x), size)]
        found = [run(quantized(op, part.shape, given), [part])[0] for part in parts]
        assert np.concatenate(found).tobytes() == whole.tobytes(), size


def extreme_rows(rng: np.random.Generator, rows: int, depth: int) -> Array:
    """Rows with outliers, zeros, subnormal numbers, ties, NaN and infinity."""
    x = normal(rng, rows, depth) * np.exp(rng.normal(size=(rows, depth)) * 2).astype(np.float32)
    x[0] = rng.integers(-254, 255, depth) / np.float32(2)  # many ties
    x[1, : depth // 2] = 0
    x[2] *= np.float32(1e-38)
    x[3] *= np.float32(1e36)
    x[4, depth // 2], x[5, 0] = np.nan, np.inf
    x[6] = -0.0
    return x


@pytest.mark.parametrize(("bits", "group", "zero"), OPTIONS)
def test_integer_activations_equal_the_reference(bits: int, group: int, zero: str) -> None:
    op = MatmulGroupQuantized(bits, group, I8)
    rng = np.random.default_rng(group + bits)
    for rows, depth, columns in ((7, 131, 70), (8, 1, 64), (13, 256, 33), (20, 520, 130)):
        given = operands(rng, op, depth, columns, zero, bias=rows % 2 == 0)
        graph, x = quantized(op, (rows, depth), given), extreme_rows(rng, rows, depth)
        (found,), (wanted,) = run(graph, [x], steps=1), references(graph, [x])
        is_nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(found), is_nan)
        assert is_nan.any() and not is_nan.all()
        assert np.where(is_nan, 0, found).tobytes() == np.where(is_nan, 0, wanted).tobytes(), (rows, depth, columns)


def test_integer_activations_of_many_rows() -> None:
    """More rows than a block of rows that are quantized together."""
    op = MatmulGroupQuantized(4, 32, I8)
    rng = np.random.default_rng(0)
    graph = quantized(op, (400, 40), operands(rng, op, 40, 50, "none", bias=True))
    x = normal(rng, 400, 40)
    assert run(graph, [x], steps=1)[0].tobytes() == references(graph, [x])[0].tobytes()


def test_leading_axes_are_rows() -> None:
    op = MatmulGroupQuantized(4, 16)
    rng = np.random.default_rng(0)
    given = operands(rng, op, 48, 20, "none", bias=False)
    x = normal(rng, 2, 3, 4, 48)
    (found,) = run(quantized(op, x.shape, given), [x])
    (flat,) = run(quantized(op, (24, 48), given), [x.reshape(24, 48)])
    assert found.shape == (2, 3, 4, 20)
    assert found.tobytes() == flat.tobytes()


@pytest.mark.parametrize("rows", [1, 20])
def test_result_that_determines_integers_is_summed_in_float64(rows: int) -> None:
    """The sum 1e8 + 1 - 1e8 is 0 in float32, and the cast would give another integer."""
    op = MatmulGroupQuantized(8, 16)
    graph = graph_of([(rows, 16)])
    codes = np.full((2, 16), 129, np.uint8)
    y = graph.add(op, graph.inputs[0], graph.constant(codes), graph.constant(np.ones((2, 1), np.float32)))
    graph.output(graph.add(Cast(I32), y))
    x = np.zeros((rows, 16), np.float32)
    x[:, :3] = (1e8, 1, -1e8)
    (found,) = run(graph, [x])
    np.testing.assert_array_equal(found, references(graph, [x])[0])
    assert (found == 1).all()


def test_computed_weights_run_the_reference() -> None:
    graph = graph_of([(2, 16), (3, 1)])
    codes = graph.constant(np.full((3, 8), 0x99, np.uint8))
    graph.output(graph.add(MatmulGroupQuantized(4, 16), graph.inputs[0], codes, graph.inputs[1]))
    plan = NativePlan(graph, "BM1686", available_isas()[-1], 1)
    assert [node.op.name for node in plan.reference_nodes] == ["matmul_group_quantized"]
    feeds = [np.ones((2, 16), np.float32), np.full((3, 1), 0.5, np.float32)]
    np.testing.assert_array_equal(plan.run(feeds, evaluate)[0], np.full((2, 3), 8, np.float32))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits": 3}, "bits"),
        ({"group": 12}, "group size"),
        ({"group": 0}, "group size"),
        ({"depth": 0}, "extent"),
        ({"rows": -1}, "extent"),
        ({"columns": 1 << 40}, "extent"),
        ({"depth": 65}, "codes"),
        ({"columns": 5}, "codes"),
        ({"codes": np.zeros((4, 31), np.uint8)}, "codes"),
        ({"scale": np.ones(7, np.float32)}, "scales"),
        ({"zero": np.ones(9, np.float32)}, "zero points"),
        ({"bias": np.ones(3, np.float32)}, "bias"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", ["group_matmul_float32", "group_matmul_int8"])
@pytest.mark.parametrize("isa", available_isas())
def test_rejects_sizes_that_do_not_fit(changes: dict[str, object], reason: str, kernel: str, isa: str) -> None:
    make = getattr(native(), kernel)
    fields = {
        "x": native().Place(0, 0),
        "y": native().Place(1, 0),
        "rows": 2,
        "columns": 4,
        "depth": 64,
        "bits": 4,
        "group": 32,
        "codes": np.zeros((4, 32), np.uint8),
        "scale": np.ones(8, np.float32),
    }
    make(native().GroupMatmulSpec(**fields), isa)
    with pytest.raises(ValueError, match=reason):
        make(native().GroupMatmulSpec(**{**fields, **changes}), isa)
