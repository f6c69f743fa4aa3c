"""Choice between the direct and the Winograd convolution; see ``int8/winograd/winograd.h``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tpuconvert.runtime.native.builder import arena
from tpuconvert.runtime.native.builder.builder import Builder, Candidate, NativeStep
from tpuconvert.runtime.native.builder.storage import Stored
from tpuconvert.schema.errors import UsageError

DIRECT, WINOGRAD = "conv_int8", "conv_int8_winograd"


def add_convolution(
    builder: Builder, spec: Any, geometry: Any, reads: Sequence[Stored], writes: Sequence[Stored]
) -> None:
    """Add the step of the kernel with the lower estimated cost, which depends on shapes and instruction set only.

    With a memory limit, the step is a direct one and a candidate for ``spend_memory``.
    """
    cost = builder.native.winograd_cost(geometry, builder.isa)
    is_cheaper = cost is not None and cost.winograd < cost.direct and builder.native.is_winograd_exact(spec)
    if is_cheaper and builder.memory_limit is None:
        builder.step(WINOGRAD, spec, reads, writes)
        return
    if is_cheaper:
        gain = cost.direct - cost.winograd
        builder.candidates.append(Candidate(len(builder.steps), spec, gain, cost.weight_bytes))
    builder.step(DIRECT, spec, reads, writes)


def spend_memory(builder: Builder, arena_bytes: int, threads: int) -> None:
    """Replace direct convolutions by Winograd ones while arena, scratch memory and packed weights fit the limit.

    Candidates with the largest gain per byte come first, then those that run earlier. One that does not fit stays
    direct, and the next one is tried.

    Raises:
        UsageError: if the plan does not fit without them.
    """
    limit = builder.memory_limit
    if limit is None:
        return
    used = arena_bytes + _step_bytes(builder, threads)
    if used > limit:
        raise UsageError(
            f"memory_limit={limit}: the plan needs {used} bytes for its arena, scratch memory and packed weights",
            hint=f"set a limit of at least {used}",
        )
    for candidate in sorted(builder.candidates, key=lambda item: (-item.gain / item.weight_bytes, item.position)):
        before = cast("NativeStep", builder.steps[candidate.position])
        if used - before.step.packed_bytes + candidate.weight_bytes > limit:
            continue
        step = builder.native.conv_int8_winograd(candidate.spec, builder.isa)
        builder.steps[candidate.position] = before._replace(step=step, kernel=WINOGRAD)
        after = arena_bytes + _step_bytes(builder, threads)
        if after > limit:
            builder.steps[candidate.position] = before
        else:
            used = after


def _step_bytes(builder: Builder, threads: int) -> int:
    """Bytes of packed weights, and of the scratch memory of all threads."""
    steps = [entry.step for entry in builder.native_steps]
    scratch = max((step.scratch_bytes for step in steps), default=0)
    slack: int = builder.native.SLACK
    packed: int = sum(step.packed_bytes for step in steps)
    return packed + threads * arena.footprint(scratch, slack)
