"""``tpuconvert.sbom``: the software bill of materials of the installation, in the CycloneDX format."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tpuconvert.diagnosis.packages import read_requirements
from tpuconvert.installed import NAME, version
from tpuconvert.results import Result
from tpuconvert.runtime.native.loader import extension
from tpuconvert.schema.file_replacement import replacing

SPEC_VERSION = "1.6"
NAMESPACE = uuid.UUID("a6a1b2a4-6f0c-5d2e-9d0b-3f1d6c5a7e42")
"""Namespace of serial numbers: equal contents have equal numbers."""

EXTRAS = ("images", "distributed", "language", "signing")
"""Extras whose packages tpuconvert imports. Those of the others are tools for its development and for benchmarks."""

_LONGEST_LICENSE = 64
"""Length above which the field License is the text of a license, and no name."""


@dataclass(frozen=True)
class Component:
    """An installed package.

    Args:
        name: its normalized name.
        version: its version.
        license: SPDX expression or name of its license; empty if its metadata have none.
        has_expression: whether it is an SPDX expression.
        is_optional: whether only an extra needs it.
        depends_on: normalized names of the installed packages that it requires.

    """

    name: str
    version: str
    license: str
    has_expression: bool
    is_optional: bool
    depends_on: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Package URL, which identifies the component."""
        return f"pkg:pypi/{self.name}@{self.version}"


@dataclass(frozen=True, repr=False)
class Sbom(Result):
    """Software bill of materials: tpuconvert and the installed packages that it uses.

    Args:
        components: tpuconvert, then the packages by name.

    """

    components: tuple[Component, ...]

    def lines(self) -> list[str]:
        """Return the number of packages, then name, version and license of each."""
        own, *others = self.components
        width = max(len(f"{each.name} {each.version}") for each in self.components)
        heading = f"{own.name} {own.version} and {len(others)} installed packages"
        rows = (f"  {f'{each.name} {each.version}':<{width}}  {each.license or 'no license stated'}" for each in others)
        return [heading, *(row + ("  (optional)" * each.is_optional) for row, each in zip(rows, others, strict=True))]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of CycloneDX 1.6, as ``sbom --json`` prints it."""
        own, *others = self.components
        by_name = {each.name: each.purl for each in self.components}
        content = {
            "metadata": {"component": {**_describe(own), "type": "application"}},
            "components": [
                {**_describe(each), "scope": "optional" if each.is_optional else "required"} for each in others
            ],
            "dependencies": [
                {"ref": each.purl, "dependsOn": [by_name[name] for name in each.depends_on]} for each in self.components
            ],
        }
        number = uuid.uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
        head = {"bomFormat": "CycloneDX", "specVersion": SPEC_VERSION, "serialNumber": number.urn, "version": 1}
        return {**head, **content}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a file.

        Raises:
            UsageError: The file cannot be written.

        """
        with replacing(path) as file:
            file.write((json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode())


def sbom() -> Sbom:
    """List tpuconvert and the installed packages that it uses, required ones and those of extras.

    Returns:
        The software bill of materials. Equal installations give equal documents.

    Example:
        >>> tc.sbom().to_dict()["bomFormat"]
        'CycloneDX'

    """
    required, extras = read_requirements(metadata.requires(NAME) or [])
    direct = {_normalize(package.name) for package in required}
    chosen = {_normalize(package.name) for extra in extras if extra.name in EXTRAS for package in extra.packages}
    needed, optional = _closure(direct), _closure(chosen)
    every = {**optional, **needed}
    packages = [_component(name, about, every, name not in needed) for name, about in sorted(every.items())]
    own = _component(NAME, _metadata_of(NAME), {name for name in direct if name in every}, is_optional=False)
    return Sbom((own, *packages, *_compiled_in()))


def _closure(names: set[str]) -> dict[str, Any]:
    """Return the metadata of the installed packages of these names and of all that they require, by name."""
    found: dict[str, Any] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        about = _metadata_of(name)
        if about is not None:
            found[name] = about
            waiting += _requirements_of(about)
    return found


def _metadata_of(name: str) -> Any:
    try:
        return metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements_of(about: Any) -> Iterator[str]:
    """Yield the names of required packages, without those of extras.

    Environment markers are not evaluated: a package for another system is not installed, and is therefore not listed.
    """
    for requirement in about.get_all("Requires-Dist") or ():
        specification, _, marker = requirement.partition(";")
        name = re.match(r"\s*([\w.-]+)", specification)
        if name is not None and not re.search(r"\bextra\b", marker):
            yield _normalize(name[1])


def _compiled_in() -> tuple[Component, ...]:
    """Return the libraries that are part of the native engine: nanobind, which has no package at run time."""
    found = getattr(extension(), "NANOBIND", None)
    return () if found is None else (Component("nanobind", found, "BSD-3-Clause", True, False, ()),)


def _component(name: str, about: Any, known: Collection[str], is_optional: bool) -> Component:
    needs = sorted({each for each in _requirements_of(about) if each in known and each != name})
    number = version() if name == NAME else str(about["Version"])
    return Component(name, number, _license(about), bool(about.get("License-Expression")), is_optional, tuple(needs))


def _license(about: Any) -> str:
    """Return the SPDX expression, else the name of the license, else that of a classifier."""
    named = about.get("License-Expression") or about.get("License") or ""
    if named and "\n" not in named and len(named) <= _LONGEST_LICENSE and named != "UNKNOWN":
        return str(named)
    classifiers = about.get_all("Classifier") or ()
    found = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    return " OR ".join(sorted(found))


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _describe(component: Component) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
    }
    if component.license:
        name = component.license
        found["licenses"] = [{"expression": name} if component.has_expression else {"license": {"name": name}}]
    return found
