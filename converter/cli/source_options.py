"""Options that several commands share: how a source file is read, and for which chip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpuconvert.cli.config_file import config_options
from tpuconvert.cli.file_parameters import InputFile
from tpuconvert.cli.progress_bar import MODES
from tpuconvert.cli.terminal import echo

if TYPE_CHECKING:
    from tpuconvert.options import Options
    from tpuconvert.pass_instrumentation import Watch

F = TypeVar("F", bound=Callable[..., Any])

CHIPS = "bm1682, bm1684 or bm1686 (also for bm1684x and bm1688)"


def model_arguments(function: F) -> F:
    """Add MODEL and WEIGHTS."""
    return click.argument("model", type=InputFile())(
        click.argument("weights", type=InputFile(), required=False)(function)
    )


def source_options(function: F) -> F:
    """Add the options that decide how a source file is read."""
    for decorate in reversed(
        (
            click.option(
                "--input-shapes",
                metavar="NAME=1,3,224,224",
                multiple=True,
                help="Extents of an input whose shape the source leaves open; of an ONNX model a name keeps one open, "
                "as in N,3,224,224. Several: repeat it.",
            ),
            click.option("--inputs", metavar="NAMES", help="Tensor names where the model is to begin, with commas."),
            click.option("--outputs", metavar="NAMES", help="Tensor names where the model is to end, with commas."),
            click.option(
                "--fix-input",
                "fix_inputs",
                type=InputFile(is_named=True),
                metavar="NAME=VALUE",
                multiple=True,
                help="Make an input a constant: a number, true, a list as [1,2], or FILE.npy. Several: repeat it.",
            ),
            allow_root_option,
            click.option(
                "--allow-non-finite",
                is_flag=True,
                default=False,
                help="Accept constants that are NaN, or infinite without a meaning; in float only.",
            ),
            click.option("--signature", metavar="NAME", help="Of a TFLite file with several: the one to take."),
            click.option(
                "--state",
                type=click.Choice(["reset", "ports"]),
                default="reset",
                show_default=True,
                help="What a TFLite model keeps between runs: begins anew, or becomes further inputs and outputs.",
            ),
            click.option(
                "--keep-io-layout/--nchw-io",
                default=True,
                show_default=True,
                help="Whether inputs and outputs of four axes of a TFLite model keep NHWC, or are NCHW.",
            ),
            click.option(
                "--tflite-rounding",
                type=click.Choice(["double", "single"]),
                default="double",
                show_default=True,
                help="Integers of a quantized TFLite model: as its reference kernels give, or engines that round once.",
            ),
            click.option(
                "--preprocess",
                type=InputFile(),
                metavar="KEY=VALUE,...",
                help="How pictures become the input: mean, scale, color, layout, size, fit; or a YAML file.",
            ),
        )
    ):
        function = decorate(function)
    return function


def conversion_options(function: F) -> F:
    """Add what every command has that converts a source, or could: files, reading, chip, plugins, a configuration."""
    for decorate in (config_options, plugin_option, chip_option, source_options, model_arguments):
        function = decorate(function)
    return function


def allow_root_option(function: F) -> F:
    """Add --allow-root."""
    return click.option(
        "--allow-root",
        metavar="DIR",
        help="Of an ONNX model: a directory that external data may be in besides the model's folder.",
    )(function)


def chip_option(function: F) -> F:
    """Add --chip."""
    return click.option(
        "--chip",
        default="bm1686",
        show_default=True,
        metavar="CHIP",
        callback=state_alias,
        help=f"The target: {CHIPS}.",
    )(function)


def state_alias(_context: click.Context, _parameter: click.Parameter, chip: str | None) -> str | None:
    """Print which chip's operators a product executes, where it is called otherwise."""
    if chip is not None and chip.upper() not in ("BM1682", "BM1684", "BM1686"):
        from tpuconvert.schema.chip_names import alias_of, parse_chip

        if alias_of(chip):
            echo(f"{alias_of(chip)} executes the operators of {parse_chip(chip).value}", err=True)
    return chip


def calibration_method_option(function: F) -> F:
    """Add --calibration-method."""
    return click.option(
        "--calibration-method",
        default="mse",
        show_default=True,
        metavar="METHOD",
        help="How ranges are found: mse, kl, minmax, or the name that a plugin gives.",
    )(function)


def min_int8_share_option(function: F) -> F:
    """Add --min-int8-share."""
    return click.option(
        "--min-int8-share",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Fail (exit code 5) when less of the multiply-accumulates are in integers, from 0 to 1.",
    )(function)


def strict_set_option(function: F) -> F:
    """Add --strict-set."""
    return click.option(
        "--strict-set",
        is_flag=True,
        help="Write composite operators (layer_norm, gelu ...) as the operators of the set they consist of.",
    )(function)


def progress_option(function: F) -> F:
    """Add --progress."""
    return click.option(
        "--progress",
        "progress_mode",
        type=click.Choice(MODES),
        default="auto",
        show_default=True,
        help="On stderr: a bar, a line every few seconds, or nothing; auto: a bar on a terminal, else lines.",
    )(function)


def plugin_option(function: F) -> F:
    """Add --plugin and --no-plugins."""
    return click.option(
        "--plugin",
        "plugins",
        type=InputFile(),
        multiple=True,
        metavar="FILE.py",
        help="Operators and converters of your own.",
    )(no_plugins_option(function))


def no_plugins_option(function: F) -> F:
    """Add --no-plugins."""
    return click.option(
        "--no-plugins",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_leave_plugins_out,
        help="Load no plugins of installed packages; TPUCONVERT_PLUGINS=none does the same.",
    )(function)


def _leave_plugins_out(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from tpuconvert.plugins import without_installed_plugins

        context.with_resource(without_installed_plugins())


def parse_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int | str, ...]]:
    """Read ``NAME=N,3,224,224``; a part with ``=`` begins the next name. Letters name an extent that stays open.

    Raises:
        UsageError: not of that form.

    """
    from tpuconvert.schema.errors import UsageError

    hint = "--input-shapes NAME=1,3,224,224"
    shapes: dict[str, list[int | str]] = {}
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
    return {name: tuple(extents) for name, extents in shapes.items()}


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas; None stays None."""
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_fixed(texts: tuple[str, ...]) -> dict[str, Any] | None:
    """Values by input name; None without any."""
    if not texts:
        return None
    from tpuconvert.fixed_inputs import parse_fixed

    return parse_fixed(texts)


def make_options(
    *,
    input_shapes: tuple[str, ...],
    inputs: str | None,
    outputs: str | None,
    preprocess: str | None,
    fix_inputs: tuple[str, ...] = (),
    **conversion: str | bool | int | tuple[str, ...] | None,
) -> Options:
    """The options of a conversion from what was typed; ``conversion`` are the keywords of ``Options.of``."""
    from tpuconvert.options import Options

    given: dict[str, Any] = dict(conversion)
    return Options.of(
        input_shapes=parse_shapes(input_shapes),
        inputs=parse_names(inputs),
        outputs=parse_names(outputs),
        preprocess=preprocess,
        fix_inputs=_parse_fixed(fix_inputs),
        **given,
    )


def make_watch(trace: bool, dumps: tuple[str, ...], validate: bool, samples: str | None) -> Watch:
    """How a conversion is watched, from what was typed.

    Raises:
        UsageError: a dump names no rule, or a file that cannot be written.

    """
    from tpuconvert.cli.problems import ensure, ensure_writable
    from tpuconvert.pass_instrumentation import Sink, Watch

    def tell(text: str) -> None:
        echo(text, err=True)

    sinks: dict[str, Sink] = {}
    for text in dumps:
        name, _, file = text.partition("=")
        ensure(name not in sinks, f"--dump-after {name} is given twice")
        ensure_writable(file or None)
        sinks[name] = Path(file) if file else tell
    return Watch(tell if trace else None, sinks, validate, samples)


def said_again() -> list[str]:
    """The options of this call about how the source is read: verify needs the same."""
    context = click.get_current_context()
    given: list[tuple[click.Option, Any]] = [
        (parameter, context.params.get(parameter.name))
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.name is not None and parameter.name not in NOT_SAID_AGAIN
    ]
    given = [(option, value) for option, value in given if value not in (None, ()) and value != option.default]
    if not given:
        return []
    from tpuconvert.cli.verify import command as verify

    shared = {parameter.name for parameter in verify.params if isinstance(parameter, click.Option)}
    words: list[str] = []
    for parameter, value in given:
        if parameter.name not in shared:
            continue
        if parameter.is_bool_flag:
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for each in value if parameter.multiple else (value,):
                words += [parameter.opts[0], str(each)]
    return words


NOT_SAID_AGAIN = ("preprocess", "output", "report", "as_json", "progress_mode")
"""What the model file is or holds itself, and what is about this call only."""
