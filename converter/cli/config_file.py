"""``--config FILE`` and ``--set KEY=VALUE``: options of a command from YAML. The command line wins over both.

One file serves all commands that read a source. They ignore options that only ``convert`` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tpuconvert.conversion.options.rule_files import expand_rules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.yaml_files import parse_yaml, read_yaml

F = TypeVar("F", bound=Callable[..., Any])

FILES = (
    "model",
    "weights",
    "output",
    "calibration",
    "data",
    "ranges",
    "validate_on",
    "report",
    "plugins",
    "allow_root",
)
"""Options whose values name files. In a configuration file, paths are relative to the folder of that file."""

_FILE, _SET = "tpuconvert.config file", "tpuconvert.config set"


def config_options(function: F) -> F:
    """Add --config and --set."""
    # Both are eager: they set the defaults of the other options.
    function = click.option(
        "--set",
        multiple=True,
        is_eager=True,
        expose_value=False,
        metavar="KEY=VALUE",
        callback=_read_settings,
        help="One option as in --config, such as preprocess.color=GRAY. It wins over the file. Can be repeated.",
    )(function)
    return click.option(
        "--config",
        is_eager=True,
        expose_value=False,
        metavar="FILE.yaml",
        callback=_read_config_file,
        help="Options from a YAML file. Keys are the options' names; the command line wins.",
    )(function)


def _read_config_file(context: click.Context, _parameter: click.Parameter, path: str | None) -> None:
    if path is not None:
        note_input(path)
        context.meta[_FILE] = _read(context, Path(path))
        _set_defaults(context)


def _read_settings(context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> None:
    if texts:
        context.meta[_SET] = _parse(texts)
        _set_defaults(context)


def _set_defaults(context: click.Context) -> None:
    """Set defaults from ``--config`` and ``--set``. Called after each of them, because they may come in any order."""
    parameters = {parameter.name: parameter for parameter in context.command.params if parameter.expose_value}
    names = _names(parameters)
    defaults: dict[str, Any] = {}
    file, content = context.meta.get(_FILE, (Path(), {}))
    for where, values, folder in (
        (str(file), content, file.parent),
        ("--set", context.meta.get(_SET, {}), Path()),
    ):
        spelled: dict[str, object] = {}
        for key, value in values.items():
            name = names.get(_normalized_key(key))
            if spelled.setdefault(name or _normalized_key(key), key) is not key:
                raise UsageError(
                    f"{where}: '{spelled[name or _normalized_key(key)]}' and '{key}' are one option",
                    hint="leave one of them out",
                )
            if name is None and _is_option_of_convert(context, key):
                continue
            if name is None:
                raise _unknown(where, str(key), sorted(_normalized_key(each.opts[-1]) for each in parameters.values()))
            if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping):
                value = {**defaults[name], **value}
            if name in FILES:
                value = (
                    [_resolve_path(each, folder) for each in value]
                    if isinstance(value, list)
                    else _resolve_path(value, folder)
                )
            if name == "precision" and not isinstance(value, Mapping):
                value = list(expand_rules(value, folder))
            if name == "fix_inputs" and isinstance(value, Mapping):
                value = {
                    key: _resolve_path(each, folder) if _is_array_file(each) else each for key, each in value.items()
                }
            defaults[name] = value
    context.default_map = {name: _to_argument(parameters[name], value, name) for name, value in defaults.items()}


def _names(params: Mapping[str, click.Parameter]) -> dict[str, str]:
    """Map every normalized option name to its parameter."""
    return {_normalized_key(option): name for name, parameter in params.items() for option in (name, *parameter.opts)}


def _is_option_of_convert(context: click.Context, key: object) -> bool:
    assert context.parent is not None and isinstance(context.parent.command, click.Group)
    convert = context.parent.command.get_command(context.parent, "convert")
    assert convert is not None
    shown = {parameter.name: parameter for parameter in convert.params if parameter.expose_value and parameter.name}
    return _normalized_key(key) in _names(shown)


def _normalized_key(key: object) -> str:
    """Normalize an option name: ``--input-shapes`` and ``input-shapes`` become ``input_shapes``."""
    return str(key).lstrip("-").replace("-", "_")


def _is_array_file(value: Any) -> bool:
    return isinstance(value, str) and value.lower().endswith(".npy")


def _resolve_path(name: Any, folder: Path) -> Any:
    return str(folder / name) if isinstance(name, str) else name


def _to_argument(parameter: click.Parameter, value: Any, name: str) -> Any:
    """Convert a YAML value to the text of a command line."""
    if name == "precision":
        return expand_rules(value)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{name}: {value!r} is neither true nor false", hint="write true or false")
        return value
    if isinstance(value, Mapping):
        parts = [f"{key}={_join(each)}" for key, each in value.items()]
        return tuple(parts) if parameter.multiple else ",".join(parts)
    if parameter.multiple:
        return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    return None if value is None else _join(value)


def _join(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _read(context: click.Context, path: Path) -> tuple[Path, Mapping[str, Any]]:
    content = read_yaml(path)
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise UsageError(f"{path}: is not a mapping of options to values", hint="quantize: int8")
    if "models" in content:
        raise UsageError(f"{path}: is a manifest of several models", hint=f"tpuconvert ci {path}")
    return path, content


def _parse(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``a.b=c`` to ``{"a": {"b": "c"}}``. The value after the first ``=`` is YAML."""
    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        name, _, part = key.partition(".")
        if not separator or not name:
            raise UsageError(f"--set {text}: is not KEY=VALUE", hint="--set quantize=int8 --set preprocess.color=GRAY")
        plain = parse_yaml(value, f"--set {text}")
        if not part and name not in values:
            values[name] = plain
        elif part and isinstance(values.setdefault(name, {}), dict) and part not in values[name]:
            values[name][part] = plain
        else:
            raise UsageError(f"--set {text}: '{key}' has a value already", hint="leave one of them out")
    return values


def _unknown(where: str, key: str, options: list[str]) -> Exception:
    hint = did_you_mean(_normalized_key(key), options) or f"one of {', '.join(options)}"
    return UsageError(f"{where}: unknown option '{key}'", hint=hint)
