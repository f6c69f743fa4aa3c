"""Load the compiled extension and choose the instruction set."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tpuconvert.schema.errors import MissingExtraError, UsageError

ISA_VARIABLE = "TPUCONVERT_ISA"
LIBRARY_VARIABLE = "TPUCONVERT_NATIVE_LIBRARY"
_NAME = "tpuconvert.runtime._native"


@cache
def extension() -> ModuleType | None:
    """Return the compiled module, or None if it was not built.

    ``TPUCONVERT_NATIVE_LIBRARY`` selects another build, for example with sanitizers.

    Raises:
        UsageError: if the file named by the variable cannot be loaded.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        spec = importlib.util.spec_from_file_location(_NAME, named)
        if spec is None or spec.loader is None or not os.path.isfile(named):
            raise UsageError(f"{LIBRARY_VARIABLE}={named} is not an extension module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_NAME] = module
        return module
    try:
        return importlib.import_module(_NAME)
    except ModuleNotFoundError:
        return None


def is_left_out() -> bool:
    """Return True if the package was installed with TPUCONVERT_NATIVE=off; ``setup.py`` writes the file."""
    return extension() is None and (Path(__file__).parents[2] / "native_left_out.txt").is_file()


def native() -> Any:
    """Return the compiled module. Its functions are defined in runtime/kernels/*/bind.cpp; there is no stub file.

    Raises:
        MissingExtraError: if it was not built.
    """
    module = extension()
    if module is None:
        raise MissingExtraError(
            "this installation of tpuconvert has no native engine",
            hint="install it where a C++ compiler is found, or use backend='auto' or backend='reference'",
        )
    return module


@cache
def available_isas() -> tuple[str, ...]:
    """Instruction sets that this CPU supports, in ascending order; empty without the extension."""
    return () if extension() is None else tuple(native().available_isas())


@cache
def kernels(architecture: str = "") -> dict[str, tuple[str, ...]]:
    """Instruction sets for which a kernel has an implementation, by kernel name; empty without the extension.

    Args:
        architecture: ``x86_64`` or ``aarch64``; the default is the best one of this machine.
    """
    return {} if extension() is None else {name: tuple(isas) for name, isas in native().kernels(architecture)}


def chosen_isa() -> str:
    """Return the best instruction set, or the one that ``TPUCONVERT_ISA`` names.

    Raises:
        UsageError: if the variable names an instruction set that this CPU does not support.
        MissingExtraError: without the extension.
    """
    native()
    named = os.environ.get(ISA_VARIABLE)
    if not named:
        return available_isas()[-1]
    if named not in available_isas():
        supported = ", ".join(available_isas())
        raise UsageError(f"{ISA_VARIABLE}={named} is not supported by this CPU; expected one of: {supported}")
    return named
