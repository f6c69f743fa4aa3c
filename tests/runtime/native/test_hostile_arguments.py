"""Arguments of the extension that nobody meant: refused with an exception, or harmless.

The calls are those that the planner makes for random graphs, recorded and changed one argument at a time. What a
constructor accepts must be refused by the program when it would leave its buffers, or run inside of them; a build with
sanitizers ends at the first byte outside.
"""

import faulthandler
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from native_cases import make
from native_cases.comparison import evaluator
from native_cases.hostile import mutated

from tpuconvert.runtime.native import builder as builder_module
from tpuconvert.runtime.native.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

KINDS = ("conv_v2", "conv_v2_depthwise", "deconv_v2", "conv_mode_1", "matrix_mul_modes", "sum_in_common_units", "moves",
         "sum_as_tflite", "product_of_two", "shift_arithmetic", "pool", "pool_int", "softmax_int", "tables", "casts",
         "quantize_and_back", "requant_alone", "matrix_mul_v2_two_operands", "float_products", "float_elements",
         "float_images", "float_rows", "joined_after_tables")  # fmt: skip
SAMPLE, FULL = 2, 40
CHANGES = 25
MOST_BYTES = 1 << 24


@dataclass
class Call:
    """A call of the extension: a function's name and arguments, some of which are results of other calls."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)  # attributes that were set afterwards


class Recorder:
    """Stands for the extension and notes what is called."""

    def __init__(self) -> None:
        self.module = native()
        self.results: dict[int, tuple[Any, Call]] = {}
        self.steps: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        is_enumeration = isinstance(found, type) and not hasattr(found, "__init__")
        if not callable(found) or is_enumeration or name in ("Program", "Rescale", "Declined", "available_isas"):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            known = Call(name, [self.noted(item) for item in arguments], {k: self.noted(v) for k, v in named.items()})
            self.results[id(result)] = (result, known)
            if isinstance(result, self.module.Step):
                self.steps.append(known)
            return result

        return call

    def noted(self, value: Any) -> Any:
        """An argument as a call that can be made again."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.noted(item) for item in value)
        if id(value) not in self.results:
            return value
        result, call = self.results[id(value)]
        if isinstance(result, self.module.ConvGeometry):
            names = [name for name in dir(result) if not name.startswith("_")]
            return Call(call.name, fields={name: getattr(result, name) for name in names})
        return call


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """Paths to everything in a call that can be changed."""
    if isinstance(value, Call):
        found = []
        for part in ("arguments", "named", "fields"):
            items = getattr(value, part)
            keys = range(len(items)) if isinstance(items, list) else items
            for key in keys:
                found += leaves(items[key], (*path, part, key))
        return found
    found = [path]
    if isinstance(value, (list, tuple)) and any(isinstance(item, (Call, tuple)) for item in value):
        for index, item in enumerate(value):
            found += leaves(item, (*path, "items", index))
    return found


def made(value: Any, module: Any, target: tuple | None, rng: np.random.Generator) -> Any:
    """Make a call again with the argument at ``target`` changed."""
    if isinstance(value, Call):
        parts: dict[str, Any] = {}
        for part in ("arguments", "named", "fields"):
            items = getattr(value, part)
            keys = list(range(len(items)) if isinstance(items, list) else items)
            below = target[2:] if target and target[0] == part else None
            chosen = target[1] if target and target[0] == part else None
            parts[part] = {key: made(items[key], module, below if key == chosen else None, rng) for key in keys}
        result = getattr(module, value.name)(*parts["arguments"].values(), **parts["named"])
        for name, item in parts["fields"].items():
            setattr(result, name, item)
        return result
    if target is None or target:
        if isinstance(value, (list, tuple)):
            inner = {target[1]: target[2:]} if target else {}
            return type(value)(made(item, module, inner.get(index), rng) for index, item in enumerate(value))
        return value
    if isinstance(value, np.ndarray):
        return changed_array(value, rng)
    if isinstance(value, str):
        return ["", "scalar", "nonsense", value * 2, "avx2"][int(rng.integers(5))]
    if value is None:
        return None
    return mutated(value, rng, extremes=True) if rng.random() < 0.95 else None


def changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    choice = int(rng.integers(6))
    if choice == 0:
        return array[:-1]
    if choice == 1:
        return np.concatenate([array, array[:1]]) if array.size else np.ones(3, array.dtype)
    if choice == 2:
        return array[..., ::-1]
    if choice == 3:
        return array.astype(np.float64)
    if choice == 4 and array.size:
        limits = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.finfo(array.dtype)
        copy = array.copy()
        copy.reshape(-1)[int(rng.integers(copy.size))] = [limits.min, limits.max, 0][int(rng.integers(3))]
        return copy
    return array[:0]


def recorded(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Call], list[tuple[str, int]]]:
    """The steps of a case, and kinds and sizes of its buffers."""
    case, recorder = make(kind, seed), Recorder()
    sizes: list[tuple[str, int]] = []
    finish = builder_module.Builder.finish

    def finished(self):
        finish(self)
        sizes.extend((buffer.kind, buffer.size) for buffer in self.buffers)

    isas = available_isas()
    with monkeypatch.context() as patched:
        patched.setattr(builder_module, "native", lambda: recorder)
        patched.setattr(builder_module.Builder, "finish", finished)
        NativePlan(case.graph, case.chip.name, isas[seed % len(isas)], 1)
    return recorder.steps, sizes


def run_alone(module: Any, step: Any, sizes: list[tuple[str, int]], threads: int) -> None:
    """A program of one step over buffers of these sizes, none of which share memory."""
    buffers, constants, top = [], [], 0
    for kind, size in sizes:
        buffers.append((kind, top if kind == "arena" else 0, size))
        top += size + 2 * module.SLACK if kind == "arena" else 0
        if kind == "constant":
            constants.append(np.zeros(size + module.SLACK, np.uint8))
    arena = top + module.SLACK
    program = module.Program(steps=[step], buffers=buffers, constants=constants, arena_bytes=arena, threads=threads)
    memory = program.make_memory()
    outside = []
    for index, (kind, size) in enumerate(sizes):
        if kind == "external":
            outside.append(np.zeros(size, np.uint8))
            memory.set_output(program, index, outside[-1])
    program.run(memory, 0, 1)


def attack(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Change arguments of the steps of a case; how many changes were refused, how many ran."""
    module, rng = native(), np.random.default_rng(seed)
    steps, sizes = recorded(kind, seed, monkeypatch)
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
            if "behind the end" in str(error):
                pytest.fail(f"{kind} {seed}: {call.name} {target}: {error}")
            refused += 1
    return refused, ran


@pytest.fixture(autouse=True)
def ends_when_it_hangs():
    """A step that was accepted with an absurd extent would run for hours."""
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
        steps, sizes = recorded(kind, 3, monkeypatch)
        assert steps
        for call in steps:
            run_alone(module, made(call, module, None, rng), sizes, 1)


# Programs and memories


def copy_step(module, *, source=(0, 0), target=(1, 0), shape=(4,), strides=(1,)):
    return module.copy(module.Place(*source), module.Place(*target), list(shape), list(strides), list(strides), 1, 0)


BUFFERS = [("arena", 0, 64), ("arena", 128, 64)]


@pytest.mark.parametrize(
    ("buffers", "arena"),
    [
        ([("arena", 0, 64), ("arena", 128, 64)], 192),  # no slack behind the second one
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
    case = make("conv_mode_2", 0)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[0], 1)
    evaluate = evaluator(case.chip)
    if not plan.reference_nodes:
        pytest.skip("every node has a kernel")
    with pytest.raises(ValueError, match="broadcast"):
        plan.run(case.feeds, lambda node, arrays: tuple(np.zeros((7, 7), a.dtype) for a in evaluate(node, arrays)))
