"""Random graphs against ONNX Runtime: a sample with fixed seeds, and a longer run with a fresh one."""

import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime: install tpuconvert[oracles]")

from tests.support.fresh_seed import fresh_seed
from tests.support.onnx.campaign import run_campaign, run_case  # needs onnxruntime
from tests.support.onnx.random_graphs.comparison import Outcome

FLOAT, INT8, LATER = range(61, 85), range(1, 13), range(85, 109)
CHIPS = ("bm1684", "bm1686")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("mode", "seeds"), [("float", FLOAT), ("int8", INT8), pytest.param("float", LATER, marks=pytest.mark.slow)]
)
def test_sample_of_random_graphs(mode: str, seeds: range, chip: str) -> None:
    """Half of the seeds on each chip.

    ``python -m tests.support.onnx.campaign --only SEED`` prints the reduced graph.
    """
    outcomes = {seed: run_case(seed, mode, chip)[0] for seed in seeds[CHIPS.index(chip) :: 2]}
    findings = {seed: outcome for seed, outcome in outcomes.items() if outcome.is_finding}
    assert not findings
    assert sum(outcome.kind == "equal" for outcome in outcomes.values()) > len(outcomes) / 2


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("mode", "count"), [("float", 2500), ("int8", 750)])
def test_fresh_random_graphs(mode: str, count: int, chip: str) -> None:
    """The seed is printed with the table of outcomes."""
    first = fresh_seed()
    counts = run_campaign(mode, chip, first, count)
    assert not [kind for kind in counts if Outcome(kind).is_finding], f"seed {first}"
