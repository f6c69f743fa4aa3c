"""Options of a conversion. Each is declared once, as a field of :class:`Options`.

A declaration states the type, the default, the help text, how a given value is checked, and whether the recipe in a
model file stores it. Derived from it are the options of the commands (``cli/conversion_options.py``), the keys of
configuration files and manifests, the recipe, and the table in ``docs/command-line.md``. A test compares the signature
and the docstring of ``tpuconvert.convert`` with it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

from tpuconvert.conversion.options.nms_options import read_append_nms
from tpuconvert.conversion.options.readers import (
    Buckets as Buckets,
)
from tpuconvert.conversion.options.readers import (
    Shapes as Shapes,
)
from tpuconvert.conversion.options.readers import (
    check_form,
    check_type,
    float_rule,
    is_method,
    read_allow_root,
    read_buckets,
    read_chip,
    read_fixed_inputs,
    read_int16_share,
    read_keep_float,
    read_max_iterations,
    read_method,
    read_mode,
    read_names,
    read_precision,
    read_preprocess,
    read_rules,
    read_samples,
    read_shapes,
    read_share,
    read_weight_group,
    read_workers,
)
from tpuconvert.optimizer.precision_rules import PrecisionRule, parse_rule
from tpuconvert.samples.preprocess import PIXEL_FORMATS, Preprocess
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.option_style import name_argument
from tpuconvert.schema.system.limits import DEFAULT_LIMITS
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Chip, Shape

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


@dataclass(frozen=True)
class Declaration:
    """Declaration of an option, besides name, type and default.

    Args:
        help: one or two sentences for users.
        read: checks a given value and returns the one that is stored.
        is_of_source: whether the option changes how the source is read, so that ``verify`` needs it too.
        is_of_quantization: whether the option has a meaning for quantized models only.
        in_recipe: whether the recipe stores it.
        flags: command-line flags, if they are not derived from the name.
        metavar: placeholder of the value on the command line.
        syntax: further help text about the syntax of the value on the command line.
        choices: the accepted values; the first is the default.
        least: lower limit of a number.
        most: upper limit of a number.
        is_repeated: whether it may be repeated on the command line.
        is_file: whether the value may name a file.
    """

    help: str
    read: Callable[[Any], Any] = lambda value: value
    is_of_source: bool = False
    is_of_quantization: bool = False
    in_recipe: bool = True
    flags: str = ""
    metavar: str | None = None
    syntax: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    is_repeated: bool = False
    is_file: bool = False


def option(default: Any, help: str, **declared: Any) -> Any:
    """Return a dataclass field for an option. The arguments are the same as for :class:`Declaration`."""
    metadata = {"option": Declaration(help, **declared)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _read_without(names: str | Iterable[str] | None) -> tuple[str, ...]:
    given = dict.fromkeys((names,) if isinstance(names, str) else names or ())
    for name in given:
        if name not in ALGORITHMS:
            hint = did_you_mean(name, ALGORITHMS) or f"one of {', '.join(ALGORITHMS)}"
            raise UsageError(f"without: there is no algorithm '{name}'", hint=hint)
    return tuple(name for name in ALGORITHMS if name in given)


@dataclass(frozen=True)
class Options:
    """Checked and normalized options: everything besides the input files that determines the result of a conversion."""

    chip: Chip = option(  # noqa: RUF009 - returns a field
        Chip.BM1686,
        "Target chip: ``bm1682``, ``bm1684`` or ``bm1686``. ``bm1684x`` and ``bm1688`` select BM1686, whose operators "
        "they execute.",
        read=read_chip,
        in_recipe=False,  # a field of the file
        metavar="CHIP",
    )
    quantize: str | None = option(
        None,
        "``int8``, or ``none`` for float. A quantized source keeps its own integers in both cases.",
        read=read_mode,
        choices=("none", "int8"),
    )
    calibration_method: str = option(
        "auto",
        "Method that finds ranges from samples: ``mse``, ``kl``, ``minmax``, ``percentile`` (99.99 %, or as in "
        "``percentile:99.9``), ``octav``, ``aciq``, or the name of a plugin's method. ``auto`` chooses one of them for "
        "each tensor by the error at the outputs, beginning with ``minmax`` for the feature maps of networks that "
        "predict at every position, such as detectors, and ``mse`` for all other tensors.",
        read=read_method,
        metavar="METHOD",
    )
    precision: tuple[str, ...] = option(
        (),
        "Rules for selected nodes: ``SELECTOR=SETTINGS``. The selector is a name with wildcards, ``op:NAME`` or "
        "``between A and B``; the settings are ``float32``, ``float16``, ``int8``, ``int16``, ``per-tensor``, "
        "``per-channel``, ``symmetric``, ``asymmetric``, a calibration method or ``threshold:NUMBER``. Later rules "
        "win.",
        read=read_precision,
        is_of_quantization=True,
        metavar="SELECTOR=SETTINGS",
        syntax="Or @FILE: a YAML file with rules.",
        is_repeated=True,
    )
    keep_float: tuple[str, ...] = option(
        (),
        "Nodes that stay in float32: the selector of a precision rule. It wins over all precision rules.",
        read=read_keep_float,
        is_of_quantization=True,
        metavar="SELECTOR",
        is_repeated=True,
    )
    effort: str = option(
        "default",
        "Effort of the quantization: ``low`` finds ranges only, ``default`` also searches for calibration methods and "
        "refines weights and biases, ``high`` also leaves out algorithms without which the error at the outputs is "
        "smaller.",
        is_of_quantization=True,
        choices=("default", "low", "high"),
    )
    without: tuple[str, ...] = option(
        (),
        "Algorithms of the quantization to skip: ``method-search``, ``channel-scales``, ``balancing``, "
        "``coarse-nodes``, ``two-term-weights``, ``int16-nodes``, ``reconstruction``, ``weight-rounding``, "
        "``bias-correction``, ``decision-paths``.",
        read=_read_without,
        is_of_quantization=True,
        metavar="ALGORITHM",
        is_repeated=True,
    )
    max_int16_share: float | None = option(
        None,
        "Largest share of the multiply-accumulates, from 0 to 1, in nodes that get 16 bits on BM1686 because rounding "
        "their operands to 8 bits adds most error at the outputs, and in nodes that stay in float because 8 bits are "
        "too coarse. Default: 0.05, or 0 with ``--effort low``; without a number, accurate and large networks keep "
        "8 bits.",
        read=read_int16_share,
        is_of_quantization=True,
        metavar="SHARE",
        least=0.0,
        most=1.0,
    )
    refinement_samples: int = option(
        64,
        "Largest number of samples that refine weights and biases.",
        read=read_samples,
        is_of_quantization=True,
        metavar="N",
        least=1,
    )
    workers: int = option(
        1,
        "Number of threads that calibration and refinement split the samples over. Results do not depend on it.",
        read=read_workers,
        is_of_quantization=True,
        in_recipe=False,  # does not change the result
        metavar="N",
        least=1,
    )
    scheduler: str | None = option(
        None,
        "Address of a dask scheduler, such as ``tcp://host:8786``: the samples are split over its workers.",
        is_of_quantization=True,
        in_recipe=False,  # does not change the result
        metavar="ADDRESS",
    )
    weight_type: str = option(
        "float32",
        "Type of the weights of matmuls in a float model: ``int4`` and ``int8`` store them with one scale per group of "
        "inputs. Samples of ``calibration`` make the rounding more accurate.",
        choices=("float32", "int8", "int4"),
    )
    weight_group: int = option(
        32,
        "Number of inputs that share a scale of ``weight_type``: 16, 32, 64, 128 or 256.",
        read=read_weight_group,
        metavar="N",
        least=16,
    )
    weight_zero_points: bool = option(
        False,
        "Store a zero point per group of ``weight_type`` besides the scale, for weights that are not centered at 0.",
    )
    activation_type: str = option(
        "float32",
        "Type of the activations of matmuls with packed weights of ``weight_type`` or of the source: ``int8`` "
        "quantizes each group of each row when it is computed, and multiplies integers.",
        choices=("float32", "int8"),
    )
    input_shapes: Mapping[str, Shape] = option(
        {},
        "Shapes of inputs with dynamic dimensions. For ONNX, a name instead of an extent keeps the dimension dynamic.",
        read=read_shapes,
        is_of_source=True,
        metavar="NAME=1,3,224,224",
        is_repeated=True,
    )
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = option(
        (),
        "The only shapes of the inputs that the model accepts, called buckets. The ONNX file has dynamic dimensions "
        "where they differ. A session makes a plan for each bucket.",
        read=read_buckets,
        is_of_source=True,
        metavar="1x3x320x320,1x3x640x640",
        syntax="For several inputs, 'a=1x16;b=1x16,a=1x64;b=1x64'.",
        is_repeated=True,
    )
    inputs: tuple[str, ...] | None = option(
        None,
        "Names of the tensors at which the model begins.",
        read=read_names,
        is_of_source=True,
        metavar="NAMES",
        syntax="Separate names by commas.",
    )
    outputs: tuple[str, ...] | None = option(
        None,
        "Names of the tensors at which the model ends.",
        read=read_names,
        is_of_source=True,
        metavar="NAMES",
        syntax="Separate names by commas.",
    )
    preprocess: Preprocess | None = option(  # noqa: RUF009 - returns a field
        None,
        "Conversion of images to the model's input: mean, scale, color, layout, size, fit. Stored in the model.",
        read=read_preprocess,
        is_of_source=True,
        in_recipe=False,  # a field of the file
        metavar="KEY=VALUE,...",
        syntax="Or a YAML file.",
        is_file=True,
    )
    fuse_preprocess: str = option(
        "none",
        "Pixel format of the model's input, if the model computes the preprocessing itself: uint8 [N, H, W, 3] in the "
        "order ``rgb`` or ``bgr``, [N, H, W, 1] for ``gray``, or planes [N, H * 3/2, W] of a camera for ``nv12`` and "
        "``i420``. Needs preprocessing.",
        is_of_source=True,
        choices=("none", *PIXEL_FORMATS),
    )
    append_nms: str | None = option(
        None,
        "Replace outputs with boxes and scores by the boxes that non-maximum suppression selects: "
        "``boxes=NAME,scores=NAME``, and optionally ``iou=0.5``, ``score=0.25``, ``max=100`` per image and class, "
        "``format=cxcywh`` for centers and sizes, and ``objectness=true``.",
        read=read_append_nms,
        is_of_source=True,
        metavar="KEY=VALUE,...",
    )
    strict_set: bool = option(
        False, "Expand composite operators (layer_norm, gelu ...) into the TPU operators they consist of."
    )
    disable_rules: tuple[str, ...] = option(
        (),
        "Names of optimizer rules and passes to skip; ``tpuconvert passes`` lists them.",
        read=read_rules,
        flags="--disable-rule",
        metavar="NAME",
        is_repeated=True,
    )
    signature: str | None = option(
        None,
        "Key of the signature to convert, for a TFLite file with several.",
        is_of_source=True,
        metavar="NAME",
    )
    state: str = option(
        "auto",
        "Tensors that outlive a run. ``auto``: a session keeps the key-value caches of an ONNX decoder, and every run "
        "of a TFLite model starts with the initial state. ``reset``: the initial state, TFLite only. ``ports``: they "
        "are inputs and outputs. ``none``: no session keeps any; ``ports`` for ONNX, ``reset`` for TFLite.",
        is_of_source=True,
        choices=("auto", "reset", "ports", "none"),
    )
    keep_io_layout: bool = option(
        True,
        "Keep NHWC for inputs and outputs of rank 4 of a TFLite model. Otherwise they become NCHW.",
        is_of_source=True,
        flags="--keep-io-layout/--nchw-io",
    )
    tflite_rounding: str = option(
        "double",
        "Integers of a quantized TFLite model: ``double`` rounds as the reference kernels do, ``single`` as engines "
        "that round once.",
        is_of_source=True,
        choices=("double", "single"),
    )
    max_transposes: int | None = option(
        None,
        "Largest number of transposes in the result; more are an error (exit code 5).",
        metavar="N",
        least=0,
    )
    min_int8_share: float | None = option(
        None,
        "Smallest share of the multiply-accumulates in integers, from 0 to 1; less is an error (exit code 5).",
        read=read_share,
        metavar="SHARE",
        least=0.0,
        most=1.0,
    )
    strict_accuracy: bool = option(
        False,
        "Refuse a quantized model with an output below the accuracy limits on calibration samples (exit code 5). "
        "Otherwise a warning names the output.",
        in_recipe=False,  # does not change the result
    )
    fix_inputs: Mapping[str, Any] = option(
        {},
        "Values of inputs that become constants: numbers, Booleans, lists, arrays or names of ``.npy`` files.",
        read=read_fixed_inputs,
        is_of_source=True,
        flags="--fix-input",
        metavar="NAME=VALUE",
        is_repeated=True,
        is_file=True,
    )
    max_iterations: int = option(
        DEFAULT_LIMITS.max_loop_iterations,
        "Largest number of iterations of a loop of an ONNX model that the host executes; more are an error when the "
        "model runs.",
        read=read_max_iterations,
        is_of_source=True,
        metavar="N",
        least=1,
    )
    exact_on: str = option(
        "none",
        "Chip of the vendor's compiler on which all integers must be exact: ``bm1684x``, ``bm1688`` or ``bm1684``. "
        "Nodes without an exact form, and nodes that depend on them, stay in float; if no others are left, this is an "
        "error (exit code 3). For ``bm1684`` every layer is scaled by a power of two.",
        choices=("none", "bm1684x", "bm1688", "bm1684"),
    )
    golden: int = option(
        0,
        "Number of golden vectors to store in the file: inputs, and digests of every integer tensor. ``tpuconvert "
        "device`` compares other machines with them.",
        read=lambda count: 0 if count is None else count,
        metavar="N",
        least=0,
    )
    allow_root: str | None = option(
        None,
        "Directory that may contain external data of an ONNX model, besides the folder of the model.",
        read=read_allow_root,
        is_of_source=True,
        in_recipe=False,  # a path is valid on one machine only; the recipe contains the digest of the data
        metavar="DIR",
    )
    allow_non_finite: bool = option(
        False,
        "Accept constants that are NaN, or infinite where infinity has no meaning. Float only.",
        is_of_source=True,
    )

    @property
    def precision_rules(self) -> list[PrecisionRule]:
        """The precision rules in the order in which they apply."""
        rules = [*self.precision, *map(float_rule, self.keep_float)]
        return [parse_rule(rule, is_method) for rule in rules]

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
    def float_share(self) -> float:
        """Largest share of the multiply-accumulates in nodes that stay in float because 8 bits are too coarse."""
        return INT16_SHARE if self.max_int16_share is None else self.max_int16_share

    @property
    def requests_int16(self) -> bool:
        """Return True if the options request 16 bits for nodes, also if the network is accurate or large."""
        return self.int16_share > 0.0 and (self.max_int16_share is not None or self.effort == "high")

    def fused(self, preprocess: Preprocess) -> Preprocess:
        """Return preprocessing with the pixel format of ``fuse_preprocess``."""
        return replace(preprocess, fuse="" if self.fuse_preprocess == "none" else self.fuse_preprocess)

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
            found = f"fuse_preprocess is '{self.fuse_preprocess}', but the preprocessing has fuse={stated}"
            raise UsageError(found, hint="leave one of the two out")
        return replace(self, preprocess=self.fused(self.preprocess))

    @staticmethod
    def of(**given: Any) -> Options:
        """Check and normalize the given values; other options get their defaults.

        Raises:
            UsageError: a value is not accepted, or two of them exclude each other.

        """
        options = Options(**{name: _read(name, value) for name, value in given.items()})
        if options.quantize is not None and options.chip is Chip.BM1682:
            raise UsageError("BM1682 has no integer arithmetic", hint="convert in float, or choose another --chip")
        if options.allow_non_finite and options.quantize is not None:
            found = f"allow_non_finite with quantize={options.quantize}: integers have no NaN and no infinity"
            raise UsageError(found, hint="convert in float, or repair the constants")
        if options.strict_accuracy and (options.quantize, options.weight_type) == (None, "float32"):
            hint = "add --quantize int8 or --weight-type int4, or leave --strict-accuracy out"
            raise UsageError("strict_accuracy without quantization", hint=hint)
        if options.quantize is None:
            for name in QUANTIZATION_OPTIONS:
                if getattr(options, name) != default_of(name):
                    hint = f"add --quantize int8, or leave --{name.replace('_', '-')} out"
                    raise UsageError(f"{name} without quantization", hint=hint)
        for name in ("weight_type", "activation_type"):
            if getattr(options, name) != "float32" and options.quantize is not None:
                found = f"{name}={getattr(options, name)} with quantize={options.quantize}: it is for float models"
                raise UsageError(found, hint="leave one of the two out")
        if options.weight_type == "float32":
            for name in ("weight_group", "weight_zero_points"):
                if getattr(options, name) != default_of(name):
                    hint = f"add --weight-type int4 or int8, or leave --{name.replace('_', '-')} out"
                    raise UsageError(f"{name} without weight_type", hint=hint)
        if options.max_int16_share and (options.chip is not Chip.BM1686 or options.exact_on != "none"):
            reason = f"exact_on={options.exact_on}" if options.chip is Chip.BM1686 else f"chip={options.chip.value}"
            found = f"max_int16_share with {reason}: 16-bit nodes are for BM1686 without exact_on"
            raise UsageError(found, hint="leave one of the two out")
        return options._with_fused_preprocess()


def _read(name: str, value: Any) -> Any:
    if name not in OPTIONS:
        raise TypeError(f"there is no option '{name}'")
    declared = declaration(name)
    try:
        value = check_type(declared.read(check_form(value, _TYPES[name])), _TYPES[name])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # of another type or form
        hint = f"expected {declared.metavar}" if declared.metavar else "see the documentation of the options"
        raise UsageError(f"{name} is {str(value)[:80]!r} ({type(value).__name__})", hint=hint) from error
    default = OPTIONS[name].default
    if declared.choices and value not in declared.choices and value is not default:
        hint = did_you_mean(str(value), declared.choices) or f"one of {', '.join(declared.choices)}"
        raise UsageError(f"{name} is '{value}'", hint=hint)
    if isinstance(value, int | float):
        for limit, is_inside in ((declared.least, operator.ge), (declared.most, operator.le)):
            if limit is not None and not is_inside(value, limit):
                word = "least" if is_inside is operator.ge else "most"
                raise UsageError(f"{name} is {value}, expected at {word} {limit:g}")
    return value


OPTIONS: Mapping[str, Field[Any]] = {item.name: item for item in fields(Options)}
"""Fields of ``Options`` by name, in the order of declaration."""

_TYPES: Mapping[str, str] = {name: str(item.type) for name, item in OPTIONS.items()}
"""Type of each option as it is stored."""

SOURCE_OPTIONS = tuple(name for name, item in OPTIONS.items() if item.metadata["option"].is_of_source)
"""Names of the options that decide how the source is read."""

QUANTIZATION_OPTIONS = tuple(name for name, item in OPTIONS.items() if item.metadata["option"].is_of_quantization)
"""Names of the options that have a meaning for quantized models only, without ``calibration_method``."""


for _name in OPTIONS:
    for _flag in filter(None, (OPTIONS[_name].metadata["option"].flags or "").split("/")):
        name_argument(_flag, _name)


def declaration(name: str) -> Declaration:
    """Return the declaration of an option."""
    found: Declaration = OPTIONS[name].metadata["option"]
    return found


def default_of(name: str) -> Any:
    """Return the default of an option."""
    item = OPTIONS[name]
    return item.default if item.default is not MISSING else getattr(Options(), name)
