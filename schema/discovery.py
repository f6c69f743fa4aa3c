"""Import every module of a package, so that its decorators register the definitions."""

from __future__ import annotations

import importlib
import pkgutil


def import_modules(package: str) -> tuple[str, ...]:
    """Import all modules directly below a package, sorted by name, and return their full import names.

    Modules and subpackages whose name begins with ``_`` are skipped. The package may be a folder, an installed wheel or
    a zip file. Exceptions raised by a module are not caught.
    """
    path = importlib.import_module(package).__path__
    modules = [module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_")]
    names = tuple(f"{package}.{module}" for module in sorted(modules))
    for name in names:
        importlib.import_module(name)
    return names
