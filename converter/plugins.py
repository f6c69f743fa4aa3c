"""Operators and converters from outside: Python files given by name, and the entry-point group ``tpuconvert.plugins``.

A plugin is a module that calls :func:`tpuconvert.register_op` and :func:`tpuconvert.register_converter` when it is
imported. It is code of the user's choice and runs with the user's rights; no model file can name one to be loaded.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.graph import Graph
from tpuconvert.schema.op import Op, OpKind, all_ops, tpu_op

ENTRY_POINT_GROUP = "tpuconvert.plugins"
_MODULE_PREFIX = "tpuconvert_plugin_"

OpClass = TypeVar("OpClass", bound=type[Op])


def register_op(name: str) -> Callable[[OpClass], OpClass]:
    """Decorator that adds an operator: a frozen dataclass derived from ``tpuconvert.Op``.

    Args:
        name: what a model file stores, such as ``acme_swish``. Prefix it: a name is never used for two things.

    Raises:
        UsageError: the name is taken.

    """

    def register(definition: OpClass) -> OpClass:
        all_ops()  # ours come first, so that a clash is reported for the plugin
        try:
            return tpu_op(name, OpKind.CUSTOM)(definition)
        except ValueError as error:
            raise UsageError(str(error), hint="give the operator a name with a prefix of your own") from error

    return register


def load_plugins(files: Iterable[str | Path] = ()) -> None:
    """Import the plugins of installed packages and then those in ``files``; each is imported once per process.

    Raises:
        UsageError: a file is missing, or a plugin fails; the message has the plugin and the line.

    """
    _load_installed()
    for file in files:
        _load_file(Path(file))


@functools.cache
def _load_installed() -> None:
    """Looking through the installed packages takes time, and they do not change while a program runs."""
    for entry_point in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda item: item.name):
        try:
            entry_point.load()
        except TpuConvertError:
            raise
        except Exception as error:
            raise _failed(f"{entry_point.name} ({entry_point.value})", error, None) from error


def plugins_of(graph: Graph) -> list[str]:
    """Names of the plugins whose operators a graph uses: module names, without the prefix of loaded files."""
    modules = {type(node.op).__module__ for node in graph.nodes if node.op.kind is OpKind.CUSTOM}
    return sorted(module.removeprefix(_MODULE_PREFIX) for module in modules)


def _load_file(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"{path}: no such plugin file")
    name = _MODULE_PREFIX + path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if loaded.__file__ is not None and Path(loaded.__file__).samefile(path):
            return
        raise UsageError(f"{path}: another plugin of this name is loaded: {loaded.__file__}", hint="rename one of them")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file", hint="a plugin's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except TpuConvertError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise _failed(str(path), error, path) from error


def _failed(plugin: str, error: Exception, path: Path | None) -> UsageError:
    """The error for a plugin that raised one, with the line it happened in."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if path is None or Path(frame.filename) == path][-1:]
    line = "".join(f" at line {frame.lineno} of {Path(frame.filename).name}" for frame in last)
    text = str(error) or type(error).__name__
    return UsageError(f"plugin {plugin} failed{line}: {type(error).__name__}: {text}", hint="mend it, or leave it out")
