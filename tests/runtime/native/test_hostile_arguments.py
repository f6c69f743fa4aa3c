"""Invalid arguments of the extension: refused with an exception, or harmless.

The calls are those that the planner makes for random graphs, recorded and changed one argument at a time. What a
constructor accepts must be refused by the program when it would leave its buffers, or run inside of them; a build with
sanitizers ends at the first byte outside.
"""

import faulthandler

import numpy as np
import pytest

from tests.support.native_cases.comparison import evaluator
from tests.support.native_cases.recorded_calls import leaves, made, record, run_alone
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.normalization import Lrn
from tpuconvert.schema.types import F32, Chip, TensorType

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

KINDS = ("conv_v2", "conv_v2_depthwise", "deconv_v2", "conv_mode_1", "matrix_mul_modes", "sum_in_common_units", "moves",
         "sum_as_tflite", "product_of_two", "shift_arithmetic", "pool", "pool_int", "softmax_int", "tables", "casts",
         "quantize_and_back", "requant_alone", "matrix_mul_v2_two_operands", "float_products", "float_elements",
         "float_images", "float_rows", "joined_after_tables", "slices_by_index", "arithmetic_shifts", "float_relations",
         "detections", "compare", "select", "rounding_shift", "ordering", "exact_conv_any", "conv_of_modes",
         "float_conv_any", "exact_matmul_any", "pool_any", "scatter", "regions", "blocks")  # fmt: skip
SAMPLE, FULL = 2, 40
CHANGES = 25
MOST_BYTES = 1 << 24


def attack(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Change arguments of the steps of a case; how many changes were refused, how many ran."""
    module, rng = native(), np.random.default_rng(seed)
    steps, sizes = record(kind, seed, monkeypatch)
    if not steps or sum(size for _, size in sizes) > MOST_BYTES:
        return 0, 0
    refused = ran = 0
    for _ in range(CHANGES):
        call = steps[int(rng.integers(len(steps)))]
        paths = leaves(call)
        target = paths[int(rng.integers(len(paths)))]
        try:
            step = made(call, module, target, rng)
            run_alone(module, step, sizes, 1 + seed % 2)
            ran += 1
        except (ValueError, TypeError, OverflowError, IndexError, RuntimeError, MemoryError, AttributeError) as error:
            if "past the end of a buffer" in str(error):
                pytest.fail(f"{kind} {seed}: {call.name} {target}: {error}")
            refused += 1
    return refused, ran


@pytest.fixture(autouse=True)
def ends_when_it_hangs():
    """Abort after a timeout: a step with an absurd extent would run for hours."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("kind", KINDS)
def test_sample(kind, monkeypatch):
    for seed in range(SAMPLE):
        attack(kind, seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all(kind, monkeypatch):
    outcomes = [attack(kind, seed, monkeypatch) for seed in range(SAMPLE, FULL)]
    print(f"\n{kind}: refused and ran {tuple(map(sum, zip(*outcomes, strict=True)))}")


def test_an_unchanged_call_makes_the_same_step(monkeypatch):
    """The recording itself is right: without a change everything is accepted."""
    module, rng = native(), np.random.default_rng(0)
    for kind in ("conv_v2", "moves", "tables"):
        steps, sizes = record(kind, 3, monkeypatch)
        assert steps
        for call in steps:
            run_alone(module, made(call, module, None, rng), sizes, 1)


# Programs and memories


def copy_step(module, *, source=(0, 0), target=(1, 0), shape=(4,), strides=(1,)):
    spec = module.CopySpec(
        source=module.Place(*source),
        target=module.Place(*target),
        shape=shape,
        source_strides=strides,
        target_strides=strides,
        itemsize=1,
    )
    return module.copy(spec, "scalar")


BUFFERS = [("arena", 0, 64), ("arena", 128, 64)]


@pytest.mark.parametrize(
    ("buffers", "arena"),
    [
        ([("arena", 0, 64), ("arena", 128, 64)], 192),  # no slack after the second one
        ([("arena", 0, 2**63), ("arena", 128, 64)], 256),
        ([("arena", 2**64 - 64, 64), ("arena", 128, 64)], 256),
        ([("arena", 0, 64), ("arena", 128, 3)], 256),  # smaller than what the step writes
        ([("arena", 0, 64), ("arena", 2**64 - 64, 128)], 2**64 - 1),
        ([("arena", 0, 64)], 256),
        ([("nowhere", 0, 64), ("arena", 128, 64)], 256),
        ([("constant", 0, 64), ("arena", 128, 64)], 256),
    ],
)
def test_a_program_refuses_buffers_that_do_not_fit(buffers, arena):
    module = native()
    with pytest.raises((ValueError, IndexError, TypeError, MemoryError)):
        module.Program(steps=[copy_step(module)], buffers=buffers, constants=[], arena_bytes=arena, threads=1)


@pytest.mark.parametrize(
    "step",
    [
        {"source": (0, 61)},
        {"target": (1, 2**64 - 2)},
        {"source": (-1, 0)},
        {"source": (2, 0)},
        {"shape": (65,)},
        {"shape": (2,), "strides": (64,)},
        {"shape": (2**40,), "strides": (2**30,)},
    ],
)
def test_a_program_refuses_steps_that_leave_their_buffers(step):
    module = native()
    with pytest.raises((ValueError, IndexError, TypeError)):
        module.Program(steps=[copy_step(module, **step)], buffers=BUFFERS, constants=[], arena_bytes=256, threads=1)


def test_a_program_refuses_missing_steps_no_threads_and_ranges_that_do_not_exist():
    module = native()
    with pytest.raises((ValueError, TypeError)):
        module.Program(steps=[None], buffers=BUFFERS, constants=[], arena_bytes=256, threads=1)
    with pytest.raises(ValueError, match="thread"):
        module.Program(steps=[], buffers=BUFFERS, constants=[], arena_bytes=256, threads=0)
    program = module.Program(steps=[copy_step(module)], buffers=BUFFERS, constants=[], arena_bytes=256, threads=1)
    memory = program.make_memory()
    for first, last in ((0, 2), (1, 0), (2, 2)):
        with pytest.raises(IndexError):
            program.run(memory, first, last)
    with pytest.raises(IndexError):
        program.kind(1)
    for buffer in (-1, 2):
        with pytest.raises(IndexError):
            memory.read(program, buffer)
        with pytest.raises(ValueError, match="external"):
            memory.set_input(program, buffer, np.zeros(64, np.uint8))


def test_the_memory_of_another_program_is_refused():
    module = native()
    small = module.Program(steps=[], buffers=[("arena", 0, 1)], constants=[], arena_bytes=128, threads=1)
    large = module.Program(steps=[copy_step(module)], buffers=BUFFERS, constants=[], arena_bytes=256, threads=1)
    memory = small.make_memory()
    with pytest.raises(ValueError, match="another program"):
        large.run(memory, 0, 1)
    with pytest.raises(ValueError, match="another program"):
        large.profile(memory, 0, 1)
    with pytest.raises(ValueError, match="another program"):
        memory.read(large, 0)


def test_inputs_of_the_wrong_size_and_missing_ones_are_refused():
    module = native()
    buffers = [("external", 0, 64), ("arena", 0, 64)]
    program = module.Program(steps=[copy_step(module)], buffers=buffers, constants=[], arena_bytes=256, threads=1)
    memory = program.make_memory()
    with pytest.raises(RuntimeError, match="before all its inputs"):
        program.run(memory, 0, 1)
    for wrong in (np.zeros(63, np.uint8), np.zeros(65, np.uint8), np.zeros(0, np.uint8)):
        with pytest.raises(ValueError, match="external"):
            memory.set_input(program, 0, wrong)
    with pytest.raises(TypeError):
        memory.set_input(program, 0, np.zeros((8, 8), np.uint8))


def test_reference_steps_that_return_something_else_are_refused():
    """A local response normalization of negative sums has no kernel."""
    graph = Graph()
    x = graph.input("x", TensorType(F32, (2, 5, 6)))
    graph.output(graph.add(Lrn(3, bias=-9.0, beta=2), x))
    plan = NativePlan(graph, "BM1686", available_isas()[0], 1)
    assert plan.reference_nodes
    evaluate = evaluator(Chip.BM1686)
    feeds = [np.zeros((2, 5, 6), np.float32)]
    with pytest.raises(ValueError, match="broadcast"):
        plan.run(feeds, lambda node, arrays: tuple(np.zeros((7, 7), a.dtype) for a in evaluate(node, arrays)))


@pytest.mark.parametrize("width", [2**31, -(2**31) - 1, 2**100])
def test_an_extent_that_does_not_fit_is_an_overflow(width):
    """The planner then computes the node with its reference; a wrong type would be a mistake in the planner."""
    with pytest.raises(OverflowError, match="ConvGeometry: field 'width' has an integer that does not fit"):
        native().ConvGeometry(width=width)
    with pytest.raises(TypeError, match="field 'width' has a value of the wrong type"):
        native().ConvGeometry(width="3")


@pytest.mark.parametrize("count", [1, 3, 5])
def test_zero_points_of_columns_are_one_per_column(count):
    """A shorter list was read beyond its end."""
    module = native()
    place = module.Place(0, 0)
    x, y = (module.AnyTensor(place=place, type=kind, strides=[0, 0, 4, 0, 4, 1]) for kind in ("s8", "i32"))
    w = module.AnyTensor(place=place, type="s8", strides=[0, 1, 1, 0, 0, 0])
    arguments = {
        "source": x,
        "weights": w,
        "result": y,
        "batch": 1,
        "groups": 1,
        "inputs": 1,
        "outputs": 1,
        "extents": [1, 1, 4],
        "out_extents": [1, 1, 4],
        "kernel": [1, 1, 1],
        "strides": [1, 1, 1],
        "dilations": [1, 1, 1],
        "pads": [0, 0, 0],
        "rescale": module.ConvRescale(low=-(2**31), high=2**31 - 1, mode="exact"),
        "packed": place,
        "workspace": 1 << 12,
    }
    module.any_conv(module.AnyConvSpec(**arguments, column_zeros=[1] * 4), "scalar")
    with pytest.raises(ValueError, match="invalid zero points"):
        module.any_conv(module.AnyConvSpec(**arguments, column_zeros=[1] * count), "scalar")
