"""Comparison of the source, as the frontend read it, with another engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tpuconvert.installed import version
from tpuconvert.verify.difference import Difference
from tpuconvert.verify.exactness import Exactness


@dataclass(frozen=True)
class Opinion:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and reports."""
        largest = max((item.relative for item in (*self.tensors, *self.outputs)), default=0.0)
        return {
            "engine": self.engine,
            "tensors": len(self.tensors),
            "outputs": len(self.outputs),
            "is_exact": self.is_exact,
            "largest_difference": largest if math.isfinite(largest) else None,
            "problem": self.problem,
            "exactness": self.exactness.to_dict() if self.exactness is not None else None,
            "samples": self.samples,
            "contradictions": list(self.contradictions),
        }


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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and reports."""
        return dict(vars(self))


OWN_READING = OracleInfo("tpuconvert", version(), is_independent=False, samples=0)
"""The source as the frontend read it."""
