"""Compare the results of a case on the native engine with the reference."""

from collections.abc import Sequence

import numpy as np

from tests.support.native_cases.draft import NativeCase
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.ops.activation import Active, ActiveParam, ActiveType
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import I8, Array, Chip

THREADS = (1, 2, 4)
EXACT = frozenset(
    {"requant_fp32_to_int", "dequant_int_to_fp32", "cast", "clamp", "lut"}
    | {"add", "sub", "mul", "div", "max", "min", "adds", "subs", "rsubs", "muls", "divs", "rdivs", "maxs", "mins"}
    | {"permute", "reshape", "squeeze", "expand_dims", "extract", "pad", "split", "concat", "tile", "repeat"}
    | {"broadcast", "upsample", "channel_shuffle", "lshift", "rshift", "clshift", "crshift", "index_select"}
    | {"interleave", "copy", "constdata", "space_to_batch", "batch_to_space", "sort", "topk", "arg", "argsort"}
    | {"gt", "ge", "lt", "le", "eq", "ne", "gts", "ges", "lts", "les", "eqs", "nes", "condition_select", "select"}
)
"""Operators with exactly specified float results: no rounding, or one per step in a fixed order."""
TOLERANCE = 1e-4
"""Tolerance relative to the largest magnitude, for float sums and functions that kernels may round differently."""


def evaluator(chip: Chip):
    """Function that evaluates the reference of a node."""

    def evaluate(node: Node, arrays: list[Array | None]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return node.op.evaluate(*arrays, chip=chip)

    return evaluate


def exact_values(graph: Graph) -> set[Value]:
    """Values that must be bit-exact: all integers, and floats that exact operators compute from exact values."""
    exact = {value for value in graph.values if value.producer is None or value.dtype.is_integer}
    for node in graph.sorted_nodes():
        is_exact = node.op.name in EXACT or _is_exact_function(node) or _is_integer_matmul(node)
        if is_exact and all(value is None or value in exact for value in node.inputs):
            exact.update(node.outputs)
    return exact


def _is_exact_function(node: Node) -> bool:
    """Activations with at most one multiplication per element."""
    exact = (ActiveType.ACTIVE_RELU, ActiveType.ACTIVE_ABSVAL, ActiveType.ACTIVE_LEAKY_RELU)
    return isinstance(node.op, (Active, ActiveParam)) and node.op.active_type in exact


def _is_integer_matmul(node: Node) -> bool:
    """Sums of integers, which are added in float32 in a fixed order."""
    return isinstance(node.op, MatmulGroupQuantized) and node.op.activation_type is I8


def difference(found: Array, expected: Array, exact: bool) -> str:
    """Return a description of the difference, or an empty string."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}"
    if found.dtype.kind == "f":
        nan = np.isnan(expected)
        if (np.isnan(found) != nan).any():
            return "a NaN more or less"
        found, expected = np.where(nan, 0, found), np.where(nan, 0, expected)
        if not exact:
            largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
            with np.errstate(invalid="ignore"):
                gap = np.abs(found.astype(np.float64) - expected)
            gap[found == expected] = 0
            worst = float(gap.max(initial=0))
            return "" if worst <= TOLERANCE * max(largest, 1e-30) else f"off by {worst}, the largest is {largest}"
    if found.tobytes() == expected.tobytes():
        return ""
    wrong = found != expected
    if not wrong.any():
        return "only the signs of zeros differ"
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {place}: {found[place]} instead of {expected[place]}"


def compare(case: NativeCase, isas: Sequence[str] | None = None, threads: Sequence[int] = THREADS) -> list[Node]:
    """Compare the results on every instruction set and number of threads with the reference.

    Float results that the reference may round differently must have equal bytes everywhere.

    Returns:
        The nodes that ran their references with the best instruction set.

    Raises:
        AssertionError: naming the case, the instruction set and the first difference, or a node without a kernel.
    """
    isas = isas or available_isas()
    assert isas, "there is no native engine to compare with"
    left: list[Node] = []
    first: list[Array] = []
    for isa in isas:
        left, first = compare_on(case, isa, threads, first)
    return left


def compare_on(
    case: NativeCase, isa: str, threads: Sequence[int] = THREADS, first: Sequence[Array] = ()
) -> tuple[list[Node], list[Array]]:
    """Compare the results on one instruction set, as :func:`compare` does.

    Args:
        case: graph, operands and results of the references.
        isa: instruction set.
        threads: numbers of threads.
        first: results on another instruction set, which must have equal bytes; without it, of the first run.

    Returns:
        The nodes that ran their references, and ``first``.
    """
    exact = exact_values(case.graph)
    evaluate = evaluator(case.chip)
    left: list[Node] = []
    first = list(first)
    for count in threads:
        plan = NativePlan(case.graph, case.chip.name, isa, count)
        left = plan.reference_nodes
        names = sorted({node.op.name for node in left})
        assert not (case.has_kernels and left), f"{names} ran as references ({isa}): {case}"
        for again in range(2 if count == threads[0] else 1):  # the second run uses the memory of the first
            results = plan.run(case.feeds, evaluate)
            first = first or results
            for value, found, expected, same in zip(case.graph.outputs, results, case.expected, first, strict=True):
                problem = difference(found, expected, value in exact) or difference(found, same, exact=True)
                where = f"{isa}, {count} threads, run {again}, output '{value.name}'"
                assert not problem, f"{where}: {problem}; steps {steps_of(plan)}; {case}"
    return left, first


def steps_of(plan: NativePlan) -> list[str]:
    """Names of the compiled steps."""
    return [plan._program.kind(index) for index in range(plan._program.steps)]
