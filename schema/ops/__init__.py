"""The operator definitions, one module for an operator or a family. There is no list to edit."""

import importlib
import pkgutil


def load(name: str = "") -> None:
    """Load every module of this folder; with a name only the module of that name, where there is one.

    Whoever uses a definition imports its module. This is for those who have no more than a name.
    """
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if name in ("", module.name):
            importlib.import_module(f"{__name__}.{module.name}")
