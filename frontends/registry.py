"""Which function translates which source operator: one registry per format, filled by decorators.

A converter file of a format holds decorated functions and nobody lists it: the registry imports every module of the
format's package the first time something is looked up, or those alone that a table made from the modules names for an
operator. Plugins add to the same registries with
:func:`register_converter`.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)


class Kind(enum.Enum):
    """What a source operator becomes."""

    DIRECT = "direct"
    """In its usual form one operator of the set, with casts and changes of the shape around it."""
    DECOMPOSED = "decomposed"
    """Several operators of the set."""
    FOLDED = "folded"
    """Nothing: it is resolved when the model is converted."""
    HOST = "host"
    """An operator that the chips leave to the host."""
    REFUSED = "refused"
    """Nothing: a model that has it cannot be converted."""


@dataclass(frozen=True)
class Registration:
    """One converter under one name.

    ``since`` is the first version of the operator set (ONNX opset, TFLite operator version) that has this meaning.
    ``limits`` says what is needed, or not possible, besides what the source format itself says.
    """

    name: str
    domain: str
    since: int
    converter: Converter
    kind: Kind = Kind.DECOMPOSED
    limits: str = ""

    @property
    def module(self) -> str:
        """The file that holds the converter, as an import name."""
        return getattr(self.converter, "__module__", "?")

    @property
    def summary(self) -> str:
        """First line of the converter's docstring, empty when it has none."""
        lines = (getattr(self.converter, "__doc__", None) or "").strip().splitlines()
        return lines[0] if lines else ""


class ConverterRegistry:
    """The converters of one source format. Calling it makes the decorator: ``@onnx_op("Softmax", since=13)``."""

    def __init__(self, source_format: str, package: str | None = None) -> None:
        self.source_format = source_format
        self._package = package
        self._discovered = package is None
        self.modules: Mapping[tuple[str, str], tuple[str, ...]] | None = None  # of all operators, by name and domain
        self.evaluators: ConverterRegistry | None = None  # of operators on constants; some operators have nothing else
        self.others: Callable[[], Iterable[Registration]] = tuple  # what is converted without being registered
        self._versions: dict[tuple[str, str], dict[int, Registration]] = {}
        self._refused: dict[str, str] = {}
        self._found: dict[tuple[str, str, int | None], Registration] = {}

    def __call__(
        self, *names: str, since: int = 1, domain: str = "", kind: Kind = Kind.DECOMPOSED, limits: str = ""
    ) -> Callable[[F], F]:
        """Decorator that registers a function for ``names`` (the first and its aliases).

        Args:
            names: source operator names that share this converter.
            since: the version in which this meaning began.
            domain: ONNX operator domain; empty for the default one.
            kind: what the operator becomes.
            limits: what is needed or not possible, in a few words.

        Raises:
            UsageError: a name already has a converter for this domain and version.

        """
        if not names:
            raise UsageError(f"a {self.source_format} converter needs at least one operator name")

        def decorate(converter: F) -> F:
            for name in names:
                self.add(Registration(name, domain, since, converter, kind, limits))
            return converter

        return decorate

    def add(self, registration: Registration) -> None:
        """Store one registration; a second one for the same name, domain and version is an error, never a warning."""
        if registration.since < 1:
            raise UsageError(f"{registration.name}: since must be 1 or more, not {registration.since}")
        versions = self._versions.setdefault((registration.domain, registration.name), {})
        other = versions.get(registration.since)
        if other is not None:
            qualified = f"{registration.domain}:{registration.name}" if registration.domain else registration.name
            raise UsageError(
                f"two {self.source_format} converters for '{qualified}' since version {registration.since}: "
                f"{_where(other.converter)} and {_where(registration.converter)}",
            )
        versions[registration.since] = registration
        self._found.clear()

    def find(self, name: str, *, version: int | None = None, domain: str = "") -> Registration | None:
        """The registration with the highest ``since`` that is not above ``version``.

        Without a version (formats that have none) the newest. None when there is no converter, or when all of them
        began later: an older or newer meaning is never taken instead.
        """
        found = self._found.get((domain, name, version))
        if found is None:
            self._load(name, domain)
            versions = self._versions.get((domain, name), {})
            usable = [since for since in versions if version is None or since <= version]
            if usable:
                found = self._found[domain, name, version] = versions[max(usable)]
        return found

    def _load(self, name: str, domain: str) -> None:
        """Import the modules that convert an operator; all of them, where it is not known which ones do."""
        if self.modules is None:
            self.discover()
        elif not self._discovered:
            for module in self.modules.get((name, domain), ()):
                importlib.import_module(f"{self._package}.{module}")

    def versions(self, name: str, *, domain: str = "") -> tuple[int, ...]:
        """All ``since`` versions of a name, ascending; empty when it is unknown."""
        self.discover()
        return tuple(sorted(self._versions.get((domain, name), {})))

    def names(self, *, domain: str | None = "") -> tuple[str, ...]:
        """All operator names of a domain, sorted; ``domain=None`` gives those of every domain."""
        self.discover()
        return tuple(sorted({n for d, n in self._versions if domain is None or d == domain}))

    def domains(self) -> tuple[str, ...]:
        """All domains that have a converter, sorted."""
        self.discover()
        return tuple(sorted({d for d, _ in self._versions}))

    def entries(self) -> tuple[Registration, ...]:
        """Every registration, sorted by domain, name and version: the source of all generated tables."""
        self.discover()
        found = [r for versions in self._versions.values() for r in versions.values()]
        return tuple(sorted(found, key=lambda r: (r.domain, r.name, r.since)))

    def known(self) -> tuple[Registration, ...]:
        """``entries``, the operators that only have an evaluator, and those that are converted in another way."""
        entries = self.entries()
        converted = {(entry.domain, entry.name) for entry in entries}
        rest = () if self.evaluators is None else self.evaluators.entries()
        folded = [replace(entry, kind=Kind.FOLDED) for entry in rest if (entry.domain, entry.name) not in converted]
        converted |= {(entry.domain, entry.name) for entry in folded}
        others = [entry for entry in self.others() if (entry.domain, entry.name) not in converted]
        return (*entries, *folded, *others)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Say of operators of the default domain why they have no converter, for the tables."""
        self._refused.update(reasons)

    @property
    def refused(self) -> Mapping[str, str]:
        """Operators of the default domain without a converter, and why."""
        self.discover()
        return MappingProxyType(self._refused)

    def discover(self) -> None:
        """Import every module of the format's package, once, so that all its decorators have run."""
        if self._discovered or self._package is None:
            return
        self._discovered = True  # before the imports: a converter module may itself ask the registry
        import_modules(self._package)


def _where(converter: Converter) -> str:
    return f"{getattr(converter, '__module__', '?')}.{getattr(converter, '__qualname__', converter)}"


FORMATS = ("onnx", "tflite", "caffe")
REGISTRIES = {name: ConverterRegistry(name, f"tpuconvert.frontends.{name}") for name in FORMATS}


def registry(source_format: str) -> ConverterRegistry:
    """The registry of a format.

    Raises:
        UsageError: there is no such format.

    """
    try:
        return REGISTRIES[source_format]
    except KeyError:
        raise UsageError(f"unknown source format '{source_format}': one of {', '.join(FORMATS)}") from None


def register_converter(
    source_format: str,
    name: str,
    *aliases: str,
    domain: str = "",
    since: int = 1,
) -> Callable[[F], F]:
    """Decorator for plugins: add a converter from outside.

    The built-in converters are loaded first, so that a clash is reported at the plugin's line and not at ours.

    Args:
        source_format: "onnx", "tflite" or "caffe".
        name: source operator name.
        aliases: further names for the same function.
        domain: ONNX operator domain, such as "com.acme".
        since: the version in which this meaning began.

    Raises:
        UsageError: unknown format, or the name is taken.

    """
    found = registry(source_format)
    found.discover()
    return found(name, *aliases, since=since, domain=domain)
