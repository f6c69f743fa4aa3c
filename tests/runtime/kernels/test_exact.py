"""Every entry of the table of kernels gives the bytes of the reference: seeded random graphs, threads 1, 2 and 4.

The full run is marked slow. A failure names the case: ``native_cases.make(kind, seed)`` builds it again.
"""

from functools import cache

import pytest

from tests.support.native_cases import KINDS, make
from tests.support.native_cases.comparison import compare, compare_on
from tests.support.sampled import sampled
from tpuconvert.runtime.native.builder.loader import available_isas, extension, kernels
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SAMPLE = 12
"""Cases per kind outside of the full run."""
BLOCK = 250
BLOCKS = [
    (name, start, min(start + BLOCK, kind.count))
    for name, kind in KINDS.items()
    for start in range(0, kind.count, BLOCK)
]


OF_SESSIONS = {"cached_attention_float32"}
"""Kernels that only plans of a session with states use; tests/runtime/session/test_session_state.py compares them."""

ENTRIES = [(kernel, isa) for kernel, isas in kernels().items() if kernel not in OF_SESSIONS for isa in isas]
"""The table of kernels: every implementation of every other kernel."""


@cache
def case_of(name, seed):
    return make(name, seed)


@cache
def sample():
    """Kinds and seeds of the sample, with the kernels of their plans."""
    cases = {(name, seed): case_of(name, seed) for name in KINDS for seed in range(SAMPLE)}
    return {key: NativePlan(case.graph, case.chip.name, "scalar", 1).kernels for key, case in cases.items()}


@cache
def outcome(name, seed, isa):
    """Description of a difference, or an empty string, and the results; cached, as most cases have several kernels."""
    problem, first = ("", []) if isa == "scalar" else outcome(name, seed, "scalar")
    if not problem:
        try:
            _, first = compare_on(case_of(name, seed), isa, first=first)
        except AssertionError as error:
            problem = str(error)[:1500]
    return problem, first


def problem_of(name, seed):
    """Description of a difference on any instruction set, or an empty string."""
    try:
        compare(make(name, seed))
    except AssertionError as error:
        return str(error)[:1500]
    return ""


def check(problems):
    failures = list(filter(None, problems))
    if failures:
        shown = "\n".join(failures[:3])
        pytest.fail(f"{len(failures)} of {len(problems)} cases; the first ones:\n{shown}", pytrace=False)


@pytest.mark.parametrize(("kernel", "isa"), sampled(ENTRIES))
def test_kernel(kernel, isa):
    """The scalar implementation is compared with the reference, another one also with the bytes of the scalar one."""
    cases = [key for key, used in sample().items() if kernel in used]
    assert cases, f"no sample of native_cases has a step of {kernel}: add a kind"
    if isa not in available_isas():
        pytest.skip(f"this CPU does not support {isa}")
    check([outcome(*key, isa)[0] for key in cases])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first", "end"), BLOCKS)
def test_all(name, first, end):
    check([problem_of(name, seed) for seed in range(first, end)])


def test_the_full_run_has_enough_cases():
    assert sum(kind.count for kind in KINDS.values()) >= 20_000


def test_most_cases_must_run_on_kernels():
    """Otherwise this suite would compare references with themselves."""
    strict = [name for name, kind in KINDS.items() if kind.has_kernels]
    cases = [case_of(name, seed) for name in strict for seed in range(SAMPLE)]
    assert sum(case.has_kernels for case in cases) >= 0.75 * len(cases)
