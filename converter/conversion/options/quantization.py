"""Options of a quantization to INT8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpuconvert.conversion.options.readers import (
    float_rule,
    is_method,
    read_keep_float,
    read_method,
    read_precision,
)
from tpuconvert.conversion.options.rule_files import Rules
from tpuconvert.optimizer.precision_rules import PrecisionRule, parse_rule
from tpuconvert.option_declaration import OptionGroup, document_fields, option
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import did_you_mean

REFINEMENTS = ("reconstruction", "weight-rounding", "bias-correction")
"""Algorithms of the quantization that change integers on samples."""

REFINEMENT_NEEDS = {"reconstruction": "weight-rounding"}
"""Algorithms of the refinement that have no effect without another one."""

METHOD_SEARCH = "method-search"
"""Choice of calibration methods by the error at the outputs."""

COARSE_NODES = "coarse-nodes"
"""Choice of the nodes that stay in float because 8 bits are too coarse, by the error at the outputs."""

INT16_NODES = "int16-nodes"
"""Choice of a few nodes with 16 bits by the error at the outputs."""

INT16_SHARE = 0.05
"""Largest share of the multiply-accumulates of these nodes, unless ``effort`` is ``low``."""

ALGORITHMS = (
    METHOD_SEARCH,
    "channel-scales",
    "balancing",
    COARSE_NODES,
    "two-term-weights",
    INT16_NODES,
    *REFINEMENTS,
    "decision-paths",
)
"""Algorithms of the quantization that ``without`` accepts."""


def _read_without(names: str | Iterable[str] | None) -> tuple[str, ...]:
    algorithms = dict.fromkeys((names,) if isinstance(names, str) else names or ())
    for name in algorithms:
        if name not in ALGORITHMS:
            hint = did_you_mean(name, ALGORITHMS) or f"one of {', '.join(ALGORITHMS)}"
            raise UsageError(f"without: there is no algorithm '{name}'", hint=hint)
    return tuple(name for name in ALGORITHMS if name in algorithms)


@document_fields
@dataclass(frozen=True, kw_only=True)
class Quantization(OptionGroup):
    """Options of a quantization to INT8. The defaults are the same as with ``quantize="int8"``."""

    calibration_method: str = option(
        "auto",
        "Method that finds ranges from samples. ``mse``, ``kl``, ``minmax``, ``percentile`` (99.99 %, or as in "
        "``percentile:99.9``), ``octav``, ``aciq``, or the name of a plugin's method. ``auto`` chooses one of them for "
        "each tensor by the error at the outputs, beginning with ``minmax`` for the feature maps of networks that "
        "predict at every position, such as detectors, and ``mse`` for all other tensors.",
        read=read_method,
        metavar="METHOD",
    )
    precision: Rules = option(
        (),
        "Types and methods of selected nodes. The selector is a name with wildcards, ``op:NAME`` or "
        "``between A and B``; the settings are ``float32``, ``float16``, ``int8``, ``int16``, ``per-tensor``, "
        "``per-channel``, ``symmetric``, ``asymmetric``, a calibration method or ``threshold:NUMBER``. Later rules "
        "win.",
        read=read_precision,
        metavar="SELECTOR=SETTINGS",
        syntax="Or @FILE: a YAML file with rules.",
        is_repeated=True,
    )
    keep_float: Sequence[str] = option(
        (),
        "Nodes that stay in float32. The selector is the one of a precision rule, and wins over all of them.",
        read=read_keep_float,
        metavar="SELECTOR",
        is_repeated=True,
    )
    effort: str = option(
        "default",
        "Time to spend on the quantization. ``low`` finds ranges only, ``default`` also searches for calibration "
        "methods and refines weights and biases, ``high`` also leaves out algorithms without which the error at the "
        "outputs is smaller.",
        choices=("default", "low", "high"),
    )
    without: Sequence[str] = option(
        (),
        "Algorithms of the quantization to skip. These are ``method-search``, ``channel-scales``, ``balancing``, "
        "``coarse-nodes``, ``two-term-weights``, ``int16-nodes``, ``reconstruction``, ``weight-rounding``, "
        "``bias-correction``, ``decision-paths``.",
        read=_read_without,
        metavar="ALGORITHM",
        is_repeated=True,
    )
    max_int16_share: float | None = option(
        None,
        "Largest share of the multiply-accumulates in 16 bits. Nodes get 16 bits on BM1686 if rounding their operands "
        "to 8 bits adds most error at the outputs, and stay in float, up to this share, if 8 bits are too coarse. "
        "Default: 0.05, or 0 with ``--effort low``; without a number, accurate and large networks keep 8 bits.",
        metavar="SHARE",
        lower=0.0,
        upper=1.0,
    )
    refinement_samples: int = option(
        64,
        "Largest number of samples that refine weights and biases.",
        metavar="N",
        lower=1,
    )
    workers: int = option(
        1,
        "Number of threads that share the samples. Results do not depend on it.",
        in_recipe=False,  # does not change the result
        metavar="N",
        lower=1,
    )
    scheduler: str | None = option(
        None,
        "Dask scheduler whose workers share the samples. For example ``tcp://host:8786``.",
        in_recipe=False,  # does not change the result
        metavar="ADDRESS",
    )
    min_int8_share: float | None = option(
        None,
        "Smallest share of the multiply-accumulates in integers. Less is an error (exit code 5).",
        needs_quantize=False,
        metavar="SHARE",
        lower=0.0,
        upper=1.0,
    )
    exact_on: str = option(
        "none",
        "Chip whose compiled program must have the same integers. "
        "Nodes without an exact form, and nodes that depend on them, stay in float; if no others are left, this is an "
        "error (exit code 3). For ``bm1684`` every layer is scaled by a power of two.",
        needs_quantize=False,
        choices=("none", "bm1684x", "bm1688", "bm1684"),
    )

    @property
    def precision_rules(self) -> list[PrecisionRule]:
        """The precision rules in the order in which they apply."""
        rules = [*self.precision, *map(float_rule, self.keep_float)]
        return [parse_rule(rule, is_method) for rule in rules]

    @property
    def float_share(self) -> float:
        """Largest share of the multiply-accumulates in nodes that stay in float because 8 bits are too coarse."""
        return INT16_SHARE if self.max_int16_share is None else self.max_int16_share
