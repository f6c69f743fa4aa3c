"""Packages that tpuconvert uses, derived from the metadata of the installed distribution."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tpuconvert.installed import NAME

COMPARISONS: Mapping[str, Any] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
"""Version comparisons in the requirements of this package."""


@dataclass(frozen=True)
class Package:
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
        return self.installed is not None and is_required_version(self.installed, self.required)

    def __str__(self) -> str:
        if self.fits:
            return f"{self.name} {self.installed}"
        return f"{self.name} {self.installed or 'missing'} (needs {self.required or 'any version'})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "fits": self.fits}


@dataclass(frozen=True)
class Extra:
    """A group of optional packages: ``pip install 'tpuconvert[NAME]'``."""

    name: str
    packages: tuple[Package, ...]

    @property
    def install(self) -> str | None:
        """Command that installs what is missing; None if nothing is."""
        complete = all(package.fits for package in self.packages)
        return None if complete else f"pip install '{NAME}[{self.name}]'"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        packages = [package.to_dict() for package in self.packages]
        return {"name": self.name, "packages": packages, "install": self.install}


def read_requirements(requirements: Sequence[str]) -> tuple[tuple[Package, ...], tuple[Extra, ...]]:
    """Split the requirements in the metadata of a package into required packages and extras."""
    groups: dict[str, list[Package]] = {"": []}
    for requirement in requirements:
        specification, _, marker = requirement.partition(";")
        name, required = re.fullmatch(r"([\w.-]+)\s*(.*?)\s*", specification).groups()  # type: ignore[union-attr]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        groups.setdefault(extra[1] if extra else "", []).append(Package(name, required, installed_version(name)))
    packages = groups.pop("")
    return tuple(packages), tuple(Extra(name, tuple(members)) for name, members in groups.items())


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_required_version(found: str, required: str) -> bool:
    """Compare a version with requirements such as ``>=1.26,<3``. Only the numbers of the release count."""
    for part in filter(None, required.split(",")):
        match = re.fullmatch(r"\s*(==|>=|<=|>|<)\s*(\S+)\s*", part)
        if match is None:
            raise ValueError(f"requirement '{part}': expected one of {' '.join(COMPARISONS)} and a version")
        if not COMPARISONS[match[1]](_release(found), _release(match[2])):
            return False
    return True


def _release(text: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in re.sub(r"(\.0)+$", "", numbers[0]).split(".")) if numbers else ()
