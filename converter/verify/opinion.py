"""Comparison of the source, as the frontend read it, with another engine."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.installed import version
from tpuconvert.schema.text.plain_values import Plain, Unbounded
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.exactness import Exactness


@dataclass(frozen=True)
class Opinion(
    Plain,
    hidden=("tensors", "outputs"),
    added=("largest_difference",),
    keys={"tensor_count": "tensors", "output_count": "outputs"},
):
    """Comparison of the source with another engine.

    Args:
        engine: name and version of the engine.
        tensors: differences of the source graph's tensors from the engine's, in the order of the source graph.
        outputs: differences of the source graph's outputs; of the model's outputs if only the source has integers.
        is_exact: whether the engine computes in float only.
        problem: reason for a missing comparison; empty if it was made.
        exactness: comparison of the integers of a quantized source.
        samples: number of samples that the engine ran.
        contradictions: messages about outputs whose shape, NaN or constant values the engine contradicts.

    """

    engine: str
    tensors: tuple[Difference, ...] = ()
    outputs: tuple[Difference, ...] = ()
    is_exact: bool = True
    problem: str = ""
    exactness: Exactness | None = None
    samples: int = 0
    contradictions: tuple[str, ...] = ()

    @property
    def tensor_count(self) -> int:
        """Number of compared tensors of the source graph."""
        return len(self.tensors)

    @property
    def output_count(self) -> int:
        """Number of compared outputs."""
        return len(self.outputs)

    @property
    def largest_difference(self) -> Unbounded:
        """Largest difference of a tensor or output, as a share of its range."""
        return max((item.relative for item in (*self.tensors, *self.outputs)), default=0.0)


@dataclass(frozen=True)
class OracleInfo:
    """The program that says what the source computes.

    Args:
        name: name of the engine, or ``tpuconvert`` for its own reading of the source.
        version: its version.
        is_independent: whether it shares no code with the conversion.
        samples: number of samples that it ran.
        problem: reason why no independent engine was compared; empty if one was.

    """

    name: str
    version: str
    is_independent: bool
    samples: int
    problem: str = ""


OWN_READING = OracleInfo("tpuconvert", version(), is_independent=False, samples=0)
"""The source as the frontend read it."""
