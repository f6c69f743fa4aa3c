"""Plugins: operators and converters in Python files, or in packages with the entry point ``tpuconvert.plugins``.

A plugin is a module that calls :func:`tpuconvert.register_op`, :func:`tpuconvert.register_converter` or similar
functions when it is imported. The user chooses the plugins, and they run with the user's rights. A model file cannot
cause a plugin to be loaded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tpuconvert.installed import may_have_entry_points
from tpuconvert.schema.definition.op import Op, OpKind, all_ops
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.graph.control_flow import all_graphs
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.user_code import note_user_code

if TYPE_CHECKING:
    from importlib import metadata
    from pathlib import Path

ENTRY_POINT_GROUP = "tpuconvert.plugins"

ENVIRONMENT = "TPUCONVERT_PLUGINS"
"""Environment variable with the installed plugins to load: ``none``, or names separated by commas, each of which must
load. If it is unset, all installed plugins are loaded."""

_none_installed: ContextVar[bool] = ContextVar("no installed plugins", default=False)
_MODULE_PREFIX = "tpuconvert_plugin_"


class PluginWarning(UserWarning):
    """An installed plugin failed to load and is skipped."""


def load_plugins(files: Iterable[str | Path] = ()) -> None:
    """Import the plugins of installed packages and then those in ``files``; each is imported once per process.

    An installed plugin that fails is skipped with a :class:`PluginWarning`. One that is requested by name, in ``files``
    or in TPUCONVERT_PLUGINS, has to load.

    Raises:
        UsageError: a file is missing, or a requested plugin fails; the message names the plugin and the line.

    """
    _load_installed()
    for file in files:
        _load_file(os.fspath(file))


@contextlib.contextmanager
def without_installed_plugins() -> Iterator[None]:
    """Load no installed plugins in the ``with`` block. Plugins that are loaded already stay loaded."""
    token = _none_installed.set(True)
    try:
        yield
    finally:
        _none_installed.reset(token)


def wanted_plugins() -> tuple[str, ...] | None:
    """Names of the installed plugins to load; None for all of them."""
    if _none_installed.get():
        return ()
    text = os.environ.get(ENVIRONMENT, "").strip()
    if text.lower() == "none":
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip()) or None


def _load_installed() -> None:
    _load_entry_points(wanted_plugins())


@functools.cache
def _load_entry_points(names: tuple[str, ...] | None) -> None:
    """Load the wanted installed plugins. Cached, because searching the installed packages takes time."""
    if names == ():
        return
    entry_points = _entry_points()
    for name in names or ():
        if name not in [entry_point.name for entry_point in entry_points]:
            available = ", ".join(entry_point.name for entry_point in entry_points) or "no plugin"
            raise UsageError(f"{ENVIRONMENT} names '{name}', which is not installed", hint=f"there is {available}")
    for entry_point in entry_points:
        if names is not None and entry_point.name not in names:
            continue
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
                entry_point.load()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also SystemExit, so that a plugin cannot end the program
            failure = _failure(f"{entry_point.name} ({entry_point.value})", error, None)
            if names is not None:
                raise failure from error
            warnings.warn(f"{failure.message}; going on without it", PluginWarning, stacklevel=1)


def installed_modules() -> dict[str, str]:
    """Return plugin name -> module name of the installed plugins that are loaded."""
    names = wanted_plugins()
    if names == ():
        return {}
    return {
        entry_point.name: entry_point.module
        for entry_point in _entry_points()
        if entry_point.module in sys.modules and (names is None or entry_point.name in names)
    }


def loaded_files() -> tuple[str, ...]:
    """Absolute paths of the plugin files that are loaded and still exist."""
    files = [module.__file__ for name, module in list(sys.modules.items()) if name.startswith(_MODULE_PREFIX)]
    return tuple(os.path.abspath(file) for file in files if file is not None and os.path.isfile(file))


def operators_of_file(file: str | Path) -> list[type[Op]]:
    """Load a plugin file and return the operators that it registers, in registration order.

    Raises:
        UsageError: the plugin fails, or registers none.

    """
    _load_installed()
    module = _load_file(os.fspath(file))
    operators = {id(op): op for op in all_ops().values() if op.kind is OpKind.CUSTOM and op.__module__ == module}
    if not operators:
        raise UsageError(f"{file}: registers no operator", hint="tpuconvert.register_op does")
    return list(operators.values())


def plugins_of(graph: Graph) -> list[str]:
    """Names of the plugins whose operators a graph uses: module names, without the prefix of loaded files."""
    nodes = (node for each in all_graphs(graph) for node in each.nodes)
    modules = {type(node.op).__module__ for node in nodes if node.op.kind is OpKind.CUSTOM}
    return sorted(module.removeprefix(_MODULE_PREFIX) for module in modules)


def _load_file(path: str) -> str:
    """Import a file unless it is imported already. Return the name of its module."""
    if not os.path.isfile(path):
        raise absent_file(path)
    if not path.endswith(".py"):
        raise UsageError(f"{path}: not a Python file", hint="a plugin's name ends in .py")
    note_input(path)
    name = _MODULE_PREFIX + os.path.splitext(os.path.basename(path))[0]
    installed = _installed_as(path)
    if installed is not None:  # the file is also an installed plugin
        return installed
    loaded = sys.modules.get(name)
    if loaded is not None:
        if loaded.__file__ is not None and os.path.samefile(loaded.__file__, path):
            return name
        raise UsageError(f"{path}: another plugin of this name is loaded: {loaded.__file__}", hint="rename one of them")
    import importlib.util  # imported here because few programs load plugin files

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # always so for a name that ends in .py
    module = importlib.util.module_from_spec(spec)
    note_user_code(path)
    sys.modules[name] = module  # dataclasses look up their module in sys.modules
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise
        raise _failure(path, error, path) from error
    return name


def _installed_as(path: str) -> str | None:
    """Return the module name under which an installed plugin has imported this file, or None."""
    for entry_point in _entry_points():
        name = str(entry_point.module)
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and os.path.exists(file) and os.path.samefile(file, path):
            return name
    return None


def _entry_points() -> list[metadata.EntryPoint]:
    if not may_have_entry_points(ENTRY_POINT_GROUP):
        return []
    from importlib import metadata

    return sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda item: item.name)


def _failure(plugin: str, error: BaseException, path: str | None) -> UsageError:
    """Create the error for a plugin that raised an exception, with the line that raised it."""
    import traceback  # imported here because it is needed only for errors

    file = None if path is None else os.path.abspath(path)
    locations = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        locations.append((os.path.abspath(error.filename or ""), error.lineno))
    last = [(name, line) for name, line in locations if file in (None, name)][-1:]
    where = "".join(f" at line {line} of {os.path.basename(name)}" for name, line in last)
    hint = "mend it, or leave it out" if path is not None else f"mend it, or leave it out with {ENVIRONMENT}=none"
    if isinstance(error, TpuConvertError):
        return UsageError(f"plugin {plugin} failed{where}: {error.message}", hint=error.hint or hint)
    text = str(error) or type(error).__name__
    return UsageError(f"plugin {plugin} failed{where}: {type(error).__name__}: {text}", hint=hint)
