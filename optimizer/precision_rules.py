"""Precision rules: settings of a quantization for selected nodes, as text ``SELECTOR=SETTINGS``.

The selector is the name of a node or tensor with the wildcards of ``fnmatch``, ``op:NAME`` for operators, or
``between A and B`` for all nodes on paths from A to B. The settings are separated by commas. This module reads the
texts; ``quantize/precision/precision.py`` applies the rules to a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph, Node, Source
from tpuconvert.schema.text.spelling import did_you_mean

Method = Literal["auto", "mse", "kl", "minmax", "percentile", "octav", "aciq"]
METHODS: tuple[str, ...] = get_args(Method)
"""Calibration methods, without methods of plugins. The first is the default."""

AUTO = METHODS[0]
"""Chooses one of the other methods for each tensor."""

DEFAULT_PERCENTILE = 99.99

FLOAT32, FLOAT16, INT16, INT8 = DTYPES = ("float32", "float16", "int16", "int8")
PER_TENSOR, PER_CHANNEL = WEIGHT_SCALES = ("per-tensor", "per-channel")
SYMMETRIC, ASYMMETRIC = SYMMETRIES = ("symmetric", "asymmetric")
_THRESHOLD = "threshold"

_EXAMPLE = "--precision 'conv1=float32', 'op:conv=per-tensor', 'between a and b=percentile:99.9', 'x=threshold:6'"


@dataclass(frozen=True)
class PrecisionRule:
    """Settings for selected nodes. A setting that the rule does not state is empty.

    Args:
        text: the rule as given.
        selector: text before the last ``=``.
        dtype: ``float32``, ``float16``, ``int16`` or ``int8``.
        weights: ``per-tensor`` or ``per-channel`` scales of weights.
        symmetry: ``symmetric`` or ``asymmetric`` integers for the results.
        method: calibration method of the results.
        threshold: largest magnitude of the results that is represented, in units of the float tensor.
    """

    text: str
    selector: str
    dtype: str = ""
    weights: str = ""
    symmetry: str = ""
    method: str = ""
    threshold: float | None = None

    @property
    def is_about_range(self) -> bool:
        """Return True if the rule states how the thresholds of results are found."""
        return bool(self.method) or self.threshold is not None


def parse_rule(text: str, is_method: Callable[[str], bool] = lambda name: name in METHODS) -> PrecisionRule:
    """Parse a rule.

    Args:
        text: ``SELECTOR=SETTING,SETTING``.
        is_method: returns True for the names of calibration methods.

    Raises:
        UsageError: the text is not a rule, has an unknown setting, or two settings that exclude each other.
    """
    selector, separator, settings = (part.strip() for part in text.rpartition("="))
    if not separator or not selector or not settings:
        raise UsageError(f"precision rule '{text}' is not SELECTOR=SETTINGS", hint=_EXAMPLE)
    fields: dict[str, str] = {}
    for setting in (part.strip() for part in settings.split(",")):
        field = _field(setting, is_method)
        if not field:
            choices = (*DTYPES, *WEIGHT_SCALES, *SYMMETRIES, *METHODS, _THRESHOLD)
            hint = did_you_mean(setting, choices) or f"one of {', '.join(choices)}"
            raise UsageError(f"precision rule '{text}': unknown setting '{setting}'", hint=hint)
        if field in fields:
            raise UsageError(f"precision rule '{text}': '{fields[field]}' and '{setting}' exclude each other")
        fields[field] = setting
    if fields.get("dtype") in (FLOAT32, FLOAT16) and len(fields) > 1:
        other = next(setting for field, setting in fields.items() if field != "dtype")
        hint = f"the settings of integers do not apply to {fields['dtype']}"
        raise UsageError(f"precision rule '{text}': '{fields['dtype']}' and '{other}' exclude each other", hint=hint)
    if fields.get("dtype") == INT16 and fields.get("symmetry") == ASYMMETRIC:
        hint = "integers of 16 bits are symmetric"
        raise UsageError(f"precision rule '{text}': '{INT16}' and '{ASYMMETRIC}' exclude each other", hint=hint)
    range_ = fields.get("range", "")
    rule = PrecisionRule(
        text, selector, fields.get("dtype", ""), fields.get("weights", ""), symmetry=fields.get("symmetry", "")
    )
    if not range_.startswith(f"{_THRESHOLD}:"):
        split_method(range_)
        return replace(rule, method=range_)
    threshold = _number(range_)
    if not 0 < threshold < math.inf:
        raise UsageError(f"precision rule '{text}': '{range_}' is not a positive number", hint="x=threshold:6")
    return replace(rule, threshold=threshold)


def tensor_sources(graph: Graph) -> dict[str, tuple[Source, ...]]:
    """Return the source nodes of the computed tensors of an unoptimized graph, by name.

    Rules can name these tensors, even if the optimizer removes them. Copies of a tensor in another layout are left out:
    ``x:nchw`` and ``x`` have the source of the node that reads the copy.
    """
    return {value.name: node.sources for node in graph.nodes if not _is_copy(node) for value in node.outputs}


def _is_copy(node: Node) -> bool:
    """Return True for data movement between ``x`` and ``x:nchw``."""
    operand = node.inputs[0] if node.inputs else None
    if operand is None or Trait.REARRANGES not in node.op.traits:
        return False
    return node.name.startswith(f"{operand.name}:") or operand.name.startswith(f"{node.name}:")


def split_method(method: str) -> tuple[str, float | None]:
    """Split ``percentile:99.9`` into the name and the number. Other methods have no number.

    Raises:
        UsageError: the number is not a percentage above 0, or the method takes none.
    """
    name, separator, _ = method.partition(":")
    if name != "percentile":
        if separator:
            raise UsageError(f"calibration method '{method}': {name} takes no number", hint="percentile:99.9 does")
        return name, None
    share = _number(method) if separator else DEFAULT_PERCENTILE
    if not 0 < share <= 100:
        raise UsageError(f"calibration method '{method}': expected a percentage", hint="percentile:99.99")
    return name, share


def _field(setting: str, is_method: Callable[[str], bool]) -> str:
    """Return the kind of a setting, which a rule can state once; an empty string for an unknown one."""
    name = setting.partition(":")[0]
    if setting in DTYPES:
        return "dtype"
    if setting in WEIGHT_SCALES:
        return "weights"
    if setting in SYMMETRIES:
        return "symmetry"
    return "range" if name == _THRESHOLD or is_method(name) else ""


def _number(text: str) -> float:
    """Return the number after the colon, or NaN."""
    try:
        return float(text.partition(":")[2])
    except ValueError:
        return math.nan
