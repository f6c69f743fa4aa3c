"""Grouped convolutions on every instruction set, and steps for an instruction set that the machine does not have."""

import subprocess
import sys

import pytest

from tests.support import programs
from tests.support.native_cases import make
from tests.support.native_cases.comparison import difference, evaluator
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")


@pytest.mark.parametrize("seed", [500, 501, 502, 505, 534])
@pytest.mark.parametrize("threads", [1, 4])
def test_groups_of_some_channels(seed: int, threads: int) -> None:
    """Some windows are inside the input, others reach into the padding: seed 534 ended the process."""
    case = make("conv_v2_grouped", seed)
    for isa in available_isas():
        results = NativePlan(case.graph, case.chip.name, isa, threads).run(case.feeds, evaluator(case.chip))
        for result, expected in zip(results, case.expected, strict=True):
            assert not difference(result, expected, exact=True), isa


def test_steps_refuse_an_instruction_set_that_the_machine_does_not_have() -> None:
    epilogue = native().EpilogueSpec(low=0, high=255, bytes=1)
    foreign = "neon" if "avx2" in available_isas() else "avx512vnni"
    with pytest.raises(ValueError, match=f"does not support the instruction set '{foreign}'"):
        native().Epilogue(epilogue, 8, foreign)


@pytest.mark.skipif("amx" not in available_isas(), reason="this processor has no AMX")
def test_a_step_asks_for_the_permission_to_use_amx() -> None:
    """Linux ends a process that uses the tile registers without it."""
    program = "\n".join(
        (
            "from tests.support.native_cases import make",
            "from tests.support.native_cases.comparison import evaluator",
            "from tpuconvert.runtime.native.plan import NativePlan",
            "case = make('conv_v2_grouped', 500)",
            "NativePlan(case.graph, case.chip.name, 'amx', 1).run(case.feeds, evaluator(case.chip))",
        )
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=programs.environment())
