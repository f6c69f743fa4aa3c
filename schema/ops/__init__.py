"""The operator definitions, one module for an operator or a family. There is no list to edit.

What ``reference`` alone computes with is imported there: most definitions are loaded to describe, not to compute.
"""

import functools
import importlib
import re

_DEFINITION = rb"(?m)^@tpu_op\(\"([^\"]+)\""


def load(name: str = "") -> None:
    """Load every module of this folder; with an operator's name only the module that defines it, where that is seen.

    Whoever uses a definition imports its module. This is for those who have no more than a name.
    """
    if name:
        module_name = _modules().get(name)
        if module_name is not None:
            importlib.import_module(f"{__name__}.{module_name}")
        return
    import pkgutil

    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        importlib.import_module(f"{__name__}.{module.name}")


@functools.cache
def _modules() -> dict[str, str]:
    """The module of every operator, as the sources say it: to look there takes a fraction of loading them all."""
    from pathlib import Path  # what a conversion uses imports its module

    found: dict[str, str] = {}
    for folder in __path__:
        for path in Path(folder).glob("*.py"):
            found.update((name.decode(), path.stem) for name in re.findall(_DEFINITION, path.read_bytes()))
    return found
