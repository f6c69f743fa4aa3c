"""Coverage-guided fuzzing of the kernels of the native engine with Atheris: one target per family of operators.

    TPUCONVERT_NATIVE_LIBRARY=_native.so LD_PRELOAD=asan_with_fuzzer.so \
        python -m tests.fuzzing.kernel_fuzzer matmul -max_total_time=1200 corpus/

``native/build_engine.sh`` compiles the engine by Clang, with sanitizers and with coverage of the kernels for libFuzzer.
The calls that the planner makes for random graphs are recorded once. The bytes of a case choose a call and change a few
of its arguments; then the step is made and run alone. A finding is a report of a sanitizer, a write into the slack
after a buffer, or a crash. An exception is not a finding.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import atheris
import numpy as np
import pytest

from tests.support.native_cases.recorded_calls import Call, Sizes, leaves, made, record, run_alone
from tpuconvert.runtime.native.builder.loader import native

TARGETS: dict[str, tuple[str, ...]] = {
    "convolution": ("conv_v2", "conv_v2_depthwise", "deconv_v2", "conv_mode_1"),
    "matmul": ("matrix_mul_modes", "matrix_mul_v2_two_operands"),
    "elements": ("sum_in_common_units", "sum_as_tflite", "product_of_two", "shift_arithmetic", "arithmetic_shifts"),
    "tables": ("tables", "joined_after_tables", "casts", "quantize_and_back", "requant_alone"),
    "pooling": ("pool", "pool_int", "softmax_int"),
    "movement": ("moves", "slices_by_index"),
    "floats": ("float_products", "float_elements", "float_images", "float_rows", "float_relations", "detections"),
}
"""Target -> kinds of random graphs whose recorded calls are changed."""

SEEDS = 6
"""Number of graphs per kind. Each takes the next instruction set."""

MOST_BYTES = 1 << 22
MOST_CHANGES = 4
REFUSED = (ValueError, TypeError, OverflowError, IndexError, RuntimeError, MemoryError, AttributeError)


class Choices(np.random.Generator):
    """Random numbers that the bytes of a case determine: ``made`` draws the new values from them."""

    def __init__(self, content: bytes) -> None:
        super().__init__(np.random.PCG64(int.from_bytes(content[:8], "little")))
        self._provider = atheris.FuzzedDataProvider(content)

    def integers(self, low: Any, high: Any = None, *further: Any, **named: Any) -> Any:
        """Draw one integer from the bytes, or an array from the generator."""
        if further or named:
            return super().integers(low, high, *further, **named)
        low, high = (0, low) if high is None else (low, high)
        return self._provider.ConsumeIntInRange(int(low), int(high) - 1)


def recorded(target: str) -> Iterator[tuple[Call, Sizes]]:
    """Yield every call of a target with the buffers of its plan."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in TARGETS[target]:
            for seed in range(SEEDS):
                steps, sizes = record(kind, seed, patch)
                if sum(size for _, size in sizes) <= MOST_BYTES:
                    yield from ((step, sizes) for step in steps)


def change(call: Call, module: Any, choices: Choices) -> Any:
    """Make a step with some of its arguments changed, one after the other."""
    paths = leaves(call)
    count = int(choices.integers(MOST_CHANGES + 1))
    if count <= 1:
        return made(call, module, paths[int(choices.integers(len(paths)))] if count else None, choices)
    for _ in range(count - 1):
        call = with_change(call, paths[int(choices.integers(len(paths)))], choices)
        paths = leaves(call)
    return made(call, module, paths[int(choices.integers(len(paths)))], choices)


def with_change(call: Call, path: tuple[Any, ...], choices: Choices) -> Call:
    """Return a call with the argument at a path changed, without making it."""
    part, key, *below = path
    items = getattr(call, part)
    copied: Any = list(items) if isinstance(items, list) else dict(items)
    inner = items[key]
    if isinstance(inner, Call) and below:
        copied[key] = with_change(inner, tuple(below), choices)
    elif not isinstance(inner, Call):
        copied[key] = made(inner, None, tuple(below), choices) if not _has_calls(inner) else inner
    arguments, named = (copied, call.named) if part == "arguments" else (call.arguments, copied)
    return Call(call.name, arguments, named)


def _has_calls(value: Any) -> bool:
    return isinstance(value, Call) or (isinstance(value, (list, tuple)) and any(map(_has_calls, value)))


def main() -> None:
    """Run a target."""
    name, *options = sys.argv[1:]
    calls, module = list(recorded(name)), native()
    for call, sizes in calls:  # unchanged calls run, except that the filling of new memory is not a valid index
        with contextlib.suppress(IndexError):
            run_alone(module, made(call, module, None, np.random.default_rng(0)), sizes, 1)
    print(f"{name}: {len(calls)} recorded calls", file=sys.stderr)

    def use(content: bytes) -> None:
        choices = Choices(content)
        call, sizes = calls[int(choices.integers(len(calls)))]
        threads = 1 + int(choices.integers(2))
        try:
            run_alone(module, change(call, module, choices), sizes, threads)
        except REFUSED as error:
            if "past the end of a buffer" in str(error):
                raise AssertionError(f"{call.name}: {error}") from error

    atheris.Setup([sys.argv[0], *options], use)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
