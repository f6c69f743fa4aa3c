"""Checks of the values of options. Each returns the value that ``Options`` stores.

All raise UsageError for a value that is not accepted; the message names the option.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from tpuconvert.conversion.fixed_inputs import parse_fixed, read_fixed
from tpuconvert.conversion.options.rule_files import Rules, expand_rules
from tpuconvert.optimizer.pipeline import check_names
from tpuconvert.optimizer.precision_rules import FLOAT32, METHODS, parse_rule, split_method
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.definition.chip_names import parse_chip
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.shape_buckets import format_bucket
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Chip, Dim, Shape

WEIGHT_GROUPS = (16, 32, 64, 128, 256)
"""Numbers of inputs that can share a scale of the weights."""

Shapes = Mapping[str, Sequence[Dim]]
"""Shapes of inputs by name."""


def read_chip(chip: str | Chip) -> Chip:
    """Return the chip of a name."""
    try:
        return parse_chip(chip)
    except ValueError as error:
        raise UsageError(str(error)) from None


def read_mode(mode: str | None) -> str | None:
    """Return ``int8``, or None for a float model."""
    if mode in (None, "none", "float"):
        return None
    if mode != "int8":
        raise UsageError(f"unknown quantization '{mode}'", hint="one of none, int8")
    return mode


def read_method(method: str) -> str:
    """Check the name of a calibration method, of this package or of a plugin."""
    name = method.partition(":")[0]
    if not is_method(name):
        methods = _methods_and_plugins()
        hint = did_you_mean(name, methods) or f"one of {', '.join(methods)}"
        raise UsageError(f"unknown calibration method '{method}'", hint=hint)
    split_method(method)
    return method


def is_method(name: str) -> bool:
    """Return True if a calibration method has this name."""
    return name in METHODS or name in _methods_and_plugins()


def _methods_and_plugins() -> tuple[str, ...]:
    # The import takes 185 ms: it loads the quantizer. Only methods of plugins need it.
    from tpuconvert.optimizer.quantize.ranges.calibrators import calibrators

    return calibrators()


def read_precision(rules: Rules | None) -> tuple[str, ...]:
    """Return precision rules as text, with rule files replaced by their rules."""
    return tuple(parse_rule(text, is_method).text for text in expand_rules(rules))


def read_keep_float(selectors: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return selectors of nodes that stay in float."""
    selected = (selectors,) if isinstance(selectors, str) else selectors or ()
    return tuple(parse_rule(float_rule(selector)).selector for selector in selected)


def float_rule(selector: str) -> str:
    """Return the precision rule that keeps the selected nodes in float."""
    return f"{selector}={FLOAT32}"


def read_weight_group(size: int) -> int:
    """Check the number of inputs that share a scale."""
    if isinstance(size, bool) or size not in WEIGHT_GROUPS:
        sizes = ", ".join(map(str, WEIGHT_GROUPS))
        raise UsageError(f"weight_group is {size!r}", hint=f"one of {sizes}; smaller groups are more accurate")
    return size


def read_shapes(shapes: Shapes | Iterable[str] | str | None) -> Mapping[str, Shape]:
    """Return shapes by the name of the input, from a mapping, a text or several texts."""
    if isinstance(shapes, str):
        shapes = (shapes,)
    by_name = shapes if isinstance(shapes, Mapping) else _parse_shapes(shapes or ())
    return {name: _shape(name, shape) for name, shape in by_name.items()}


def _shape(name: Any, shape: Any) -> Shape:
    if not isinstance(name, str) or isinstance(shape, str | bytes | Mapping):
        raise TypeError("a name and a sequence of extents are expected")
    if any(isinstance(extent, bool) for extent in shape):
        raise TypeError("an extent is a truth value")
    return tuple(extent if isinstance(extent, str) else operator.index(extent) for extent in shape)


def _parse_shapes(texts: Iterable[str]) -> Shapes:
    """Parse ``NAME=N,3,224,224``. A part with ``=`` begins the next name."""
    hint = "--input-shapes NAME=1,3,224,224"
    shapes: dict[str, list[Dim]] = {}
    for text in texts:
        name = ""
        for part in text.split(","):
            if "=" in part:
                name, part = part.rsplit("=", 1)
                if name in shapes:
                    raise UsageError(f"the shape of '{name}' is given twice", hint=hint)
                shapes[name] = []
            extent = part.strip()
            if not name or not (extent.isdigit() or extent.isidentifier()):
                raise UsageError(f"'{text}' is not a shape", hint=hint)
            shapes[name].append(int(extent) if extent.isdigit() else extent)
    return shapes


Buckets = Sequence[Mapping[str, Sequence[int]] | Sequence[int] | str]
"""Shapes of the inputs that a model accepts: by name, without the name of an only input, or as text."""


def read_buckets(buckets: Buckets | None) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Return buckets of shapes by input, from sequences or from texts. The name of an only input may be missing: ''."""
    listed = (buckets,) if isinstance(buckets, str) else tuple(buckets or ())
    parsed = [item for each in listed for item in (_parse_buckets(each) if isinstance(each, str) else [each])]
    read = tuple(
        {name: tuple(map(int, shape)) for name, shape in (item if isinstance(item, Mapping) else {"": item}).items()}
        for item in parsed
    )
    for bucket in read:
        for name, shape in bucket.items():
            if not shape or min(shape) < 1:
                raise UsageError(
                    f"shapes: {format_bucket({name: shape})} has an extent below 1", hint="extents are at least 1"
                )
        if bucket.keys() != read[0].keys():
            raise UsageError("shapes: every bucket needs shapes of the same inputs", hint=_BUCKETS_HINT)
    if any(bucket in read[:index] for index, bucket in enumerate(read)):
        raise UsageError("shapes: a bucket is given twice", hint="leave one of them out")
    return read


_BUCKETS_HINT = "--shapes 1x3x320x320,1x3x640x640, or for several inputs --shapes 'a=1x16;b=1x16,a=1x64;b=1x64'"


def _parse_buckets(text: str) -> list[dict[str, tuple[int, ...]]]:
    """Parse ``NAME=1x3x320x320;NAME=1x16,...``: buckets are separated by commas, inputs by semicolons."""
    buckets: list[dict[str, tuple[int, ...]]] = []
    for bucket in text.split(","):
        buckets.append({})
        for part in bucket.split(";"):
            name, _, shape = part.strip().rpartition("=")
            extents = shape.split("x")
            if not all(extent.strip().isdecimal() for extent in extents) or name in buckets[-1]:
                raise UsageError(f"'{text}' is not a list of shapes", hint=_BUCKETS_HINT)
            buckets[-1][name] = tuple(map(int, extents))
    return buckets


def read_names(names: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return names from a list, or from text with commas."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    if isinstance(names, Mapping | Set):
        raise TypeError("names have an order")
    return None if names is None else tuple(names)


def read_preprocess(preprocess: Preprocess | str | Mapping[str, Any] | None) -> Preprocess | None:
    """Return preprocessing from an object, text or a mapping."""
    return None if preprocess is None else Preprocess.of(preprocess)


def read_rules(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of optimizer rules and passes, which must exist."""
    rules = tuple(names)
    check_names(rules)
    return rules


def read_fixed_inputs(values: Mapping[str, Any] | Iterable[str] | None) -> Mapping[str, Any]:
    """Return the values of fixed inputs by name."""
    return read_fixed(values if isinstance(values, Mapping) else parse_fixed(values or ()))


def read_allow_root(folder: str | os.PathLike[str] | None) -> str | None:
    """Check that a directory exists."""
    if folder is not None and not os.path.isdir(folder):
        hint = "--allow-root names the directory that contains the files of external data"
        raise UsageError(f"allow_root: {os.fspath(folder)} is not a directory", hint=hint)
    return None if folder is None else os.fspath(folder)
