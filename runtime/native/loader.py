"""Finding the compiled extension and the instruction set to run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import cache
from types import ModuleType
from typing import Any

from tpuconvert.schema.errors import MissingExtraError, UsageError

ISA_VARIABLE = "TPUCONVERT_ISA"
LIBRARY_VARIABLE = "TPUCONVERT_NATIVE_LIBRARY"
_NAME = "tpuconvert.runtime._native"


@cache
def extension() -> ModuleType | None:
    """The compiled module, or None where it was not built.

    ``TPUCONVERT_NATIVE_LIBRARY`` names another build of it, such as one with sanitizers.

    Raises:
        UsageError: when the variable names something that cannot be loaded.
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


def native() -> Any:
    """The compiled module. What it offers is stated in the sources under runtime/kernels, not in a stub.

    Raises:
        MissingExtraError: where it was not built.
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
    """Instruction sets that this processor can run, from the plainest to the best; empty without the extension."""
    return () if extension() is None else tuple(native().available_isas())


def chosen_isa() -> str:
    """The best instruction set, or the one that ``TPUCONVERT_ISA`` names.

    Raises:
        UsageError: when the variable names one that this processor does not have.
        MissingExtraError: without the extension.
    """
    native()
    named = os.environ.get(ISA_VARIABLE)
    if not named:
        return available_isas()[-1]
    if named not in available_isas():
        raise UsageError(f"{ISA_VARIABLE}={named} is not among those that run here: {', '.join(available_isas())}")
    return named
