"""All options of a conversion: three groups, and the further arguments of ``tpuconvert.convert``.

An option has one name: as a field, as an argument in Python, as a flag, as a key of a file and in the recipe.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from typing import Any, ParamSpec, TypeVar

from tpuconvert.conversion.options.packed_weights import PackedWeights
from tpuconvert.conversion.options.quantization import (
    COARSE_NODES,
    INT16_NODES,
    INT16_SHARE,
    METHOD_SEARCH,
    REFINEMENTS,
    Quantization,
)
from tpuconvert.conversion.options.readers import read_chip, read_mode, read_preprocess, read_rules
from tpuconvert.conversion.options.source import SourceOptions
from tpuconvert.option_declaration import (
    Declaration,
    OptionGroup,
    declared,
    default_value,
    document_fields,
    option,
    read_value,
)
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.text.spelling import meant, nearest
from tpuconvert.schema.types import Chip

P = ParamSpec("P")
R = TypeVar("R")


@document_fields
@dataclass(frozen=True, kw_only=True)
class Options(SourceOptions, Quantization, PackedWeights):
    """Checked and normalized options: everything besides the input files that determines the result of a conversion."""

    chip: Chip = option(
        Chip.BM1686,
        "Target: ``bm1682``, ``bm1684`` or ``bm1686``. ``bm1684x`` and ``bm1688`` select BM1686, whose operators "
        "they execute.",
        read=read_chip,
        in_recipe=False,  # a field of the file
        metavar="CHIP",
    )
    quantize: str | None = option(
        None,
        "Quantize a float network, or leave it in float. A quantized source keeps its own integers in both cases.",
        read=read_mode,
        choices=("none", "int8"),
    )
    preprocess: Preprocess | None = option(
        None,
        "Conversion of images to the input, stored in the model. Keys are mean, scale, color, layout, size and fit.",
        read=read_preprocess,
        in_recipe=False,  # a field of the file
        metavar="KEY=VALUE,...",
        syntax="Or a YAML file.",
        is_file=True,
    )
    strict_set: bool = option(
        False, "Expand composite operators, such as layer_norm. They become the TPU operators they consist of."
    )
    disable_rules: tuple[str, ...] = option(
        (),
        "Optimizer rule or pass to skip; ``tpuconvert passes`` lists them.",
        read=read_rules,
        flags="--disable-rule",
        metavar="NAME",
        is_repeated=True,
    )
    max_transposes: int | None = option(
        None,
        "Largest number of transposes in the result. More are an error (exit code 5).",
        metavar="N",
        lower=0,
    )
    strict_accuracy: bool = option(
        False,
        "Refuse a model with an output below the accuracy limits. They are checked on calibration samples (exit code "
        "5); otherwise a warning names the output.",
        in_recipe=False,  # does not change the result
    )
    golden: int = option(
        0,
        "Number of golden vectors to store; ``tpuconvert device`` compares other machines with them.",
        read=lambda count: 0 if count is None else count,
        metavar="N",
        lower=0,
    )

    def __post_init__(self) -> None:
        """Accept the values, which :meth:`of` has read."""

    @staticmethod
    def of(*groups: OptionGroup | None, **named: Any) -> Options:
        """Check and normalize option groups and single options by name; all other options get their defaults.

        Raises:
            UsageError: a value is not accepted, or two of them exclude each other.

        """
        if isinstance(named.get("quantize"), Quantization):
            groups, named = (*groups, named["quantize"]), {**named, "quantize": "int8"}
        values: dict[str, Any] = {}
        for group in filter(None, groups):
            if not isinstance(group, OptionGroup):
                hint = f"one of {', '.join(f'{item.__name__}(...)' for item in GROUPS.values())}"
                raise UsageError(f"{str(group)[:80]!r} is not a group of options", hint=hint)
            values |= {name: getattr(group, name) for name in names_of(type(group))}
        for name, value in named.items():
            values[name] = read_value(OPTIONS[name], value)
        options = Options(**values)
        options._check()
        return options._with_fused_preprocess()

    def _check(self) -> None:
        if self.quantize is not None and self.chip is Chip.BM1682:
            raise UsageError("BM1682 has no integer arithmetic", hint="convert in float, or choose another --chip")
        if self.allow_non_finite and self.quantize is not None:
            message = f"allow_non_finite with quantize={self.quantize}: integers have no NaN and no infinity"
            raise UsageError(message, hint="convert in float, or repair the constants")
        if self.strict_accuracy and (self.quantize, self.weight_type) == (None, "float32"):
            hint = "add --quantize int8 or --weight-type int4, or leave --strict-accuracy out"
            raise UsageError("strict_accuracy without quantization", hint=hint)
        if self.quantize is None:
            names = (name for name in names_of(Quantization) if declaration(name).needs_quantize)
            self._check_unused(names, "without quantization", "--quantize int8")
        for name in ("weight_type", "activation_type"):
            if getattr(self, name) != "float32" and self.quantize is not None:
                message = f"{name}={getattr(self, name)} with quantize={self.quantize}: it is for float models"
                raise UsageError(message, hint="leave one of the two out")
        if self.weight_type == "float32":
            unused = ("weight_group", "weight_zero_points", "embedding_type")
            self._check_unused(unused, "without weight_type", "--weight-type int4 or int8")
        if self.max_int16_share and (self.chip is not Chip.BM1686 or self.exact_on != "none"):
            reason = f"exact_on={self.exact_on}" if self.chip is Chip.BM1686 else f"chip={self.chip.value}"
            message = f"max_int16_share with {reason}: 16-bit nodes are for BM1686 without exact_on"
            raise UsageError(message, hint="leave one of the two out")

    def _check_unused(self, names: Iterable[str], reason: str, remedy: str) -> None:
        for name in names:
            if getattr(self, name) != default_of(name):
                hint = f"add {remedy}, or leave --{name.replace('_', '-')} out"
                raise UsageError(f"{name} {reason}", hint=hint)

    def has_algorithm(self, name: str) -> bool:
        """Return True if the quantization uses an algorithm of ``ALGORITHMS``."""
        if name == INT16_NODES:
            return self.int16_share > 0.0
        return name not in self.without and (
            self.effort != "low" or name not in (METHOD_SEARCH, COARSE_NODES, *REFINEMENTS)
        )

    @property
    def int16_share(self) -> float:
        """Largest share of the multiply-accumulates in nodes that get 16 bits without a rule."""
        if INT16_NODES in self.without or self.chip is not Chip.BM1686 or self.exact_on != "none":
            return 0.0
        if self.max_int16_share is not None:
            return self.max_int16_share
        return 0.0 if self.effort == "low" else INT16_SHARE

    @property
    def requests_int16(self) -> bool:
        """Return True if the options request 16 bits for nodes, also if the network is accurate or large."""
        return self.int16_share > 0.0 and (self.max_int16_share is not None or self.effort == "high")

    def in_float(self) -> Options:
        """Return the options of the float model of the same source."""
        others = {name: default_of(name) for name in names_of(Quantization)}
        return replace(self, quantize=None, strict_accuracy=False, **others)

    def without_fused_preprocess(self) -> Options:
        """Return options with the same preprocessing outside of the model."""
        rule = None if self.preprocess is None else replace(self.preprocess, fuse="")
        return replace(self, preprocess=rule, fuse_preprocess="none")

    def for_model(self, preprocess: Preprocess | None) -> Options:
        """Return options that read the source of a model with this preprocessing as its conversion did.

        Preprocessing in the options wins, but whether the model computes it is a property of the model.
        """
        if preprocess is None:
            return self
        chosen = self.preprocess or preprocess
        return replace(
            self, preprocess=replace(chosen, fuse=preprocess.fuse), fuse_preprocess=preprocess.fuse or "none"
        )

    def _with_fused_preprocess(self) -> Options:
        """Return options whose ``preprocess.fuse`` and ``fuse_preprocess`` agree; either can be given.

        Raises:
            UsageError: both are given and differ, or neither is given with the size of a camera.

        """
        stated = "" if self.preprocess is None else self.preprocess.fuse
        has_camera = self.preprocess is not None and self.preprocess.camera is not None
        if has_camera and not stated and self.fuse_preprocess == "none":
            raise UsageError("preprocessing: camera without fuse_preprocess", hint="add --fuse-preprocess nv12 or rgb")
        if self.preprocess is None or stated == self.fuse_preprocess.replace("none", ""):
            return self
        if self.fuse_preprocess == "none":
            return replace(self, fuse_preprocess=stated)
        if stated:
            message = f"fuse_preprocess is '{self.fuse_preprocess}', but the preprocessing has fuse={stated}"
            raise UsageError(message, hint="leave one of the two out")
        return replace(self, preprocess=self.fused(self.preprocess))


GROUPS: Mapping[str, type[OptionGroup]] = {
    "quantization": Quantization,
    "packed_weights": PackedWeights,
    "source_options": SourceOptions,
}
"""Argument of public functions -> its group of options. ``convert`` and ``reduce`` name the first ``quantize``."""


def names_of(group: type[OptionGroup]) -> tuple[str, ...]:
    """Return the names of the options of a group."""
    return tuple(item.name for item in fields(group))


GROUP_OF: Mapping[str, type[OptionGroup]] = {name: group for group in GROUPS.values() for name in names_of(group)}
"""Group of an option by its name, without the options that are arguments of ``convert``."""

_FIELDS: Mapping[str, Field[Any]] = {item.name: item for item in fields(Options)}

OPTIONS: Mapping[str, Field[Any]] = {
    name: _FIELDS[name] for name in (*(name for name in _FIELDS if name not in GROUP_OF), *GROUP_OF)
}
"""Fields of ``Options`` by name: the arguments of ``convert``, then group by group."""

READING_OPTIONS = (*names_of(SourceOptions), "preprocess")
"""Names of the options that decide how the source is read."""


def declaration(name: str) -> Declaration:
    """Return the declaration of an option."""
    return declared(OPTIONS[name])


def default_of(name: str) -> Any:
    """Return the default of an option."""
    return default_value(OPTIONS[name])


def group_options(**options: Any) -> dict[str, Any]:
    """Return options by name as arguments of public functions: in groups, and by name."""
    grouped = {name: value for name, value in options.items() if name not in GROUP_OF}
    for argument, group in GROUPS.items():
        values = {name: options[name] for name in names_of(group) if name in options}
        if not values:
            continue
        if group is not Quantization or "quantize" not in options:
            grouped[argument] = group(**values)
        elif read_mode(options["quantize"]) is not None:
            grouped["quantize"] = group(**values)
        else:
            Options.of(**values)  # only a quantization has options
    return grouped


def takes_groups(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function name the group of an option that is given as a keyword argument."""
    accepted = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in accepted:
                raise TypeError(_explain(function, name, accepted))
        return function(*arguments, **keywords)

    return call


def _explain(function: Callable[..., Any], name: str, accepted: Sequence[str]) -> str:
    """Explain an argument that a function does not have."""
    group = GROUP_OF.get(name)
    if group is None:
        near = nearest(name, (*accepted, *GROUP_OF))
        text = f"{function.__name__}() has no argument '{name}'" + (f"; {meant(near)}" if near else "")
        return f"{text} {_explain(function, near[0], accepted)}" if near and near[0] in GROUP_OF else text
    takers = [each for each in accepted if group.__name__ in str(function.__annotations__.get(each))]
    if not takers:
        return f"{name} is a field of {group.__name__}, which {function.__name__}() does not take"
    return f"{name} is a field of {group.__name__}: {takers[0]}=tc.{group.__name__}({name}=...)"
