"""Every kernel gives the bytes of the reference: seeded random graphs, every instruction set, threads 1, 2 and 4.

The full run is marked slow. A failure names the case: ``native_cases.make(kind, seed)`` builds it again.
"""

import pytest
from native_cases import KINDS, make
from native_cases.comparison import THREADS, compare

from tpuconvert.runtime.native.loader import available_isas, extension

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SAMPLE = 12
"""Cases per kind outside of the full run."""
BLOCK = 250
BLOCKS = [
    (name, start, min(start + BLOCK, kind.count))
    for name, kind in KINDS.items()
    for start in range(0, kind.count, BLOCK)
]


@pytest.fixture(scope="module")
def counter():
    """Counts cases and says at the end how many there were."""
    counts = {"cases": 0}
    yield counts
    ways = len(available_isas()) * len(THREADS)
    print(f"\n{counts['cases']} cases, each in {ways} ways: {', '.join(available_isas())}, threads {THREADS}")


def check(name, seeds, counter):
    failures = []
    for seed in seeds:
        counter["cases"] += 1
        try:
            compare(make(name, seed))
        except AssertionError as error:
            failures.append(str(error)[:1500])
    if failures:
        shown = "\n".join(failures[:3])
        pytest.fail(f"{len(failures)} of {len(seeds)} cases; the first ones:\n{shown}", pytrace=False)


@pytest.mark.parametrize("name", KINDS)
def test_sample(name, counter):
    check(name, range(SAMPLE), counter)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first", "end"), BLOCKS)
def test_all(name, first, end, counter):
    check(name, range(first, end), counter)


def test_the_full_run_has_enough_cases():
    assert sum(kind.count for kind in KINDS.values()) >= 20_000


def test_most_cases_must_run_on_kernels():
    """Otherwise this suite would compare references with themselves."""
    strict = [name for name, kind in KINDS.items() if kind.has_kernels]
    cases = [make(name, seed) for name in strict for seed in range(20)]
    assert sum(case.has_kernels for case in cases) >= 0.75 * len(cases)
