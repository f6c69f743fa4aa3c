"""Packages that tpuconvert uses, derived from the metadata of the installed distribution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from tpuconvert.installed import NAME
from tpuconvert.schema.text.plain_values import Plain


@dataclass(frozen=True)
class Package(Plain, added=("fits",)):
    """A Python package that tpuconvert uses.

    Args:
        name: the package.
        required: the required versions, such as ``>=1.26``; empty for any.
        installed: the installed version, or None.

    """

    name: str
    required: str
    installed: str | None

    @property
    def fits(self) -> bool:
        """True if a required version is installed."""
        try:
            return self.installed is not None and SpecifierSet(self.required).contains(self.installed, prereleases=True)
        except InvalidVersion:  # not one of PEP 440
            return False

    def __str__(self) -> str:
        if self.fits:
            return f"{self.name} {self.installed}"
        return f"{self.name} {self.installed or 'missing'} (needs {self.required or 'any version'})"


@dataclass(frozen=True)
class Extra(Plain, added=("install",)):
    """A group of optional packages: ``pip install 'tpuconvert[NAME]'``."""

    name: str
    packages: tuple[Package, ...]

    @property
    def install(self) -> str | None:
        """Command that installs what is missing; None if nothing is."""
        complete = all(package.fits for package in self.packages)
        return None if complete else f"pip install '{NAME}[{self.name}]'"


def read_requirements() -> tuple[tuple[Package, ...], tuple[Extra, ...]]:
    """Return the required packages of tpuconvert on this platform, and its extras."""
    requirements = [Requirement(text) for text in metadata.requires(NAME) or ()]
    required = [item for item in requirements if _applies(item)]
    names = metadata.metadata(NAME).get_all("Provides-Extra") or ()
    extras = {name: [item for item in requirements if item not in required and _applies(item, name)] for name in names}
    return _packages(required), tuple(Extra(name, _packages(items)) for name, items in extras.items() if items)


def _applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _packages(requirements: Iterable[Requirement]) -> tuple[Package, ...]:
    return tuple(Package(item.name, str(item.specifier), installed_version(item.name)) for item in requirements)


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
