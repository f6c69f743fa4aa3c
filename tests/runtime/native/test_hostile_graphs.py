"""Invalid attributes: refused, or computed as the references do, and never outside of the arena.

In a build with sanitizers (``make sanitize``) every buffer is a separate allocation, so that overruns are detected.
"""

import contextlib

import numpy as np
import pytest

from tests.support.each import each
from tests.support.native_cases import KINDS, make
from tests.support.native_cases.comparison import difference, evaluator, exact_values
from tests.support.native_cases.hostile import elements, forge, rebuilt
from tpuconvert.runtime.native.builder.loader import available_isas, extension
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import ActiveType
from tpuconvert.schema.ops.host.regions import RoiAlign
from tpuconvert.schema.types import F32, I32, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

MOST_ELEMENTS = 300_000
SAMPLE, FULL = 2, 500
"""Cases per kind, each with a few changes."""
CHANGES = 4
STEEP = (ActiveType.ACTIVE_RSQRT, ActiveType.ACTIVE_LN, ActiveType.ACTIVE_SIN, ActiveType.ACTIVE_COS)
"""Operators after which a rounding difference of a sum is large relative to the results: their slope is unbounded, or
their results do not grow with the operand."""
NAMES = [name for name in KINDS if name not in ("quantized_networks", "conv_v2_large")]


def isa_for(seed: int) -> str:
    isas = available_isas()
    return isas[seed % len(isas)]


def attributes_that_fit_in_type(name: str, seed: int) -> tuple[int, int]:
    """Change an attribute, let all types follow, compare. Returns how many were refused and how many ran."""
    case, rng = make(name, seed), np.random.default_rng(seed)
    evaluate, refused, ran = evaluator(case.chip), 0, 0
    for _ in range(CHANGES):
        try:
            graph = rebuilt(case, rng)
        except (TpuConvertError, ValueError, TypeError, OverflowError, IndexError):
            refused += 1
            continue
        if elements(graph) > MOST_ELEMENTS:
            continue
        arrays = dict(zip(graph.inputs, case.feeds, strict=True))
        arrays |= {value: value.array for value in graph.values if value.is_constant}
        try:
            for node in graph.sorted_nodes():
                operands = [None if value is None else arrays[value] for value in node.inputs]
                for value, array in zip(node.outputs, evaluate(node, operands), strict=True):
                    if array.shape != value.shape or array.dtype != value.dtype.numpy:
                        raise ValueError(f"{node.op} breaks its word")
                    arrays[value] = array
        except (TpuConvertError, ValueError, TypeError, OverflowError, IndexError, MemoryError):
            refused += 1  # the reference does not take it: the engine may do what it likes, but not crash
            with contextlib.suppress(Exception):
                NativePlan(graph, case.chip.name, isa_for(seed), 1).run(case.feeds, evaluate)
            continue
        exact = exact_values(graph)
        what = f"{case} with {[str(node.op) for node in graph.nodes]}"
        results = NativePlan(graph, case.chip.name, isa_for(seed), 1 + seed % 2).run(case.feeds, evaluate)
        is_steep = any(getattr(node.op, "active_type", None) in STEEP for node in graph.nodes)
        for value, found in zip(graph.outputs, results, strict=True):
            if is_steep and value not in exact:
                continue
            problem = difference(found, arrays[value], value in exact)
            assert not problem, f"{isa_for(seed)}: {problem}; {what}"
        ran += 1
    return refused, ran


def lies(name: str, seed: int) -> tuple[int, int]:
    """Change an attribute or a shape and nothing else: the graph contradicts itself. What runs may give anything.

    References are left out: they rely on what operators check when they are made, which this goes round.
    """
    case, rng = make(name, seed), np.random.default_rng(seed)
    refused = ran = 0

    def evaluate(node, arrays):
        return tuple(np.zeros(value.shape, value.dtype.numpy) for value in node.outputs)

    for _ in range(CHANGES):
        with forge(case, rng) as graph:
            if elements(graph) > MOST_ELEMENTS:
                continue
            try:
                NativePlan(graph, case.chip.name, isa_for(seed), 1 + seed % 2).run(case.feeds, evaluate)
                ran += 1
            except Exception:  # any exception is a refusal; a crash ends the process
                refused += 1
    return refused, ran


@each("name", NAMES)
@pytest.mark.parametrize("how", [attributes_that_fit_in_type, lies])
def test_sample(how, name):
    outcomes = [how(name, seed) for seed in range(SAMPLE)]
    refused, ran = map(sum, zip(*outcomes, strict=True))
    assert refused + ran > 0


@pytest.mark.parametrize(
    ("how", "name", "seed"),
    [
        (attributes_that_fit_in_type, "conv_int16", 250),  # padding at the end of one of the products of bytes
        (attributes_that_fit_in_type, "conv_of_modes", 41),  # a bias of floats in mode 0
        (attributes_that_fit_in_type, "conv_mode_1", 41),
        (attributes_that_fit_in_type, "conv_mode_2", 372),
        (attributes_that_fit_in_type, "integer_recurrent_layers", 20),  # a multiplier beyond 32 bits
        (attributes_that_fit_in_type, "regions", 65),  # corners at 10^31 pixels
        (attributes_that_fit_in_type, "regions", 128),  # an infinite scale
        (lies, "blocks", 27),  # 2^32 blocks
    ],
)
def test_findings(how, name, seed):
    how(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", [attributes_that_fit_in_type, lies])
def test_all(how, name):
    outcomes = [how(name, seed) for seed in range(SAMPLE, FULL)]
    print(f"\n{name}, {how.__name__}: refused and ran {tuple(map(sum, zip(*outcomes, strict=True)))}")


def test_constants_of_a_file_are_read_in_place_and_stay_read_only(tmp_path):
    """The file's own bytes are the operands of kernels; results do not depend on where they lie."""
    for seed in range(5):
        case = make("chains", seed)
        write_model(tmp_path / f"{seed}.tpum", FileModel(case.graph, case.chip, "0"))
        graph = read_model(tmp_path / f"{seed}.tpum").graph
        results = NativePlan(graph, case.chip.name, available_isas()[-1], 1).run(case.feeds, evaluator(case.chip))
        for found, expected in zip(results, case.expected, strict=True):
            assert found.tobytes() == expected.tobytes()
        assert all(not value.array.flags.writeable for value in graph.values if value.is_constant)


def test_the_samples_of_a_region_are_bounded():
    """Otherwise one attribute, or one region of a feed, keeps the engine busy for hours."""
    for ratio, corner in ((1000, 4000.0), (0, 1e7), (0, np.inf), (2, 1e30)):
        graph = Graph("regions")
        x = graph.input("x", TensorType(F32, (1, 1, 4, 4)))
        rois, images = graph.input("rois", TensorType(F32, (1, 4))), graph.input("images", TensorType(I32, (1,)))
        pooling = RoiAlign(output_height=8, output_width=8, sampling_ratio=ratio)
        graph.output(graph.add(pooling, x, rois, images))
        feeds = [np.ones((1, 1, 4, 4), np.float32), np.float32([[0, 0, corner, corner]]), np.zeros(1, np.int32)]
        with pytest.raises(TpuConvertError, match="too many samples"):
            NativePlan(graph, "bm1686", "scalar", 1).run(feeds, lambda node, arrays: ())
        with pytest.raises(UsageError, match="too many samples"):
            graph.nodes[0].op.reference(*feeds)
