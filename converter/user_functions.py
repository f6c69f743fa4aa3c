"""Python functions named on the command line as ``module:function`` or ``FILE.py:function``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.user_code import note_definition

_FORMS = "module:function, or FILE.py:function"


def is_function_name(text: str) -> bool:
    """Return True if a text has the form ``module:function``."""
    module, _, function = text.rpartition(":")
    return bool(module) and function.isidentifier()


def load_function(text: str) -> Callable[..., Any]:
    """Import a function by name. The code runs with the user's rights.

    Modules are searched in the current folder last: a file there with the name of an installed module is not executed.

    Args:
        text: ``module:function`` or ``FILE.py:function``.

    Raises:
        UsageError: the text has another form, the import fails, or there is no such function.

    """
    if not is_function_name(text):
        raise UsageError(f"'{text}' names no function", hint=_FORMS)
    module, _, name = text.rpartition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            loaded = _load_file(module) if module.endswith(".py") else _load_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{module}: cannot be imported ({reason})", hint=_FORMS) from error
    function = getattr(loaded, name, None)
    if not callable(function):
        raise UsageError(f"{module} has no function '{name}'", hint="check its spelling: MODULE:FUNCTION")
    note_definition(function)
    result: Callable[..., Any] = function
    return result


def _load_module(name: str) -> Any:
    folder = os.getcwd()
    if folder in sys.path:
        return importlib.import_module(name)
    sys.path.append(folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _load_file(path: str) -> Any:
    note_input(path)
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
