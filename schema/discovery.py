"""Import every module of a package, so that its decorators register the definitions."""

from __future__ import annotations

import importlib
import pkgutil


def import_modules(package: str) -> tuple[str, ...]:
    """Import all modules of a package and of its subpackages, sorted by name, and return their full import names.

    Modules and subpackages whose name begins with ``_`` are skipped. The package may be a folder, an installed wheel or
    a zip file. Exceptions raised by a module are not caught.
    """
    names: list[str] = []
    for module in sorted(pkgutil.iter_modules(importlib.import_module(package).__path__), key=lambda item: item.name):
        if module.name.startswith("_"):
            continue
        name = f"{package}.{module.name}"
        importlib.import_module(name)
        names.append(name)
        if module.ispkg:
            names += import_modules(name)
    return tuple(names)
