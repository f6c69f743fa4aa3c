"""Registries of converters: the function that converts each source operator, one registry per format.

A converter file of a format contains decorated functions. No file lists them: the first lookup imports every module of
the format's package, and the decorators fill the registry. Plugins use :func:`register_converter`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.user_code import note_definition

Converter = Callable[..., Any]
F = TypeVar("F", bound=Converter)


class Kind(enum.Enum):
    """Kind of result that a converter returns for a source operator."""

    DIRECT = "direct"
    """Usually one TPU operator, possibly with casts and reshapes before and after it."""
    DECOMPOSED = "decomposed"
    """Several TPU operators."""
    FOLDED = "folded"
    """No TPU operator: the source operator is evaluated or removed during the conversion."""
    HOST = "host"
    """A host operator: it runs on the CPU of the device."""
    REFUSED = "refused"
    """Not convertible: a model with this operator is an error."""


@dataclass(frozen=True)
class Registration:
    """One converter, registered for one operator name.

    Attributes:
        name: name of the source operator.
        domain: ONNX domain of the operator; empty for the default domain.
        since: first version of the operator (ONNX opset, TFLite operator version) with this meaning.
        converter: function that converts a source node.
        kind: kind of result.
        limits: restrictions and requirements that the source format does not have, for the tables of operators.
    """

    name: str
    domain: str
    since: int
    converter: Converter
    kind: Kind = Kind.DECOMPOSED
    limits: str = ""

    @property
    def module(self) -> str:
        """Import name of the module that defines the converter."""
        return getattr(self.converter, "__module__", "?")


class ConverterRegistry:
    """Converters of one source format. An instance is also the decorator that registers them.

    Example: ``@onnx_op("Softmax", since=13)``.

    Args:
        source_format: name of the format, for error messages.
        package: import name of the package whose modules register converters; None if there is none to import.

    Attributes:
        evaluators: registry of the functions that evaluate operators on constants, if the format has one.
        others: returns operators that are converted without a registered converter.
    """

    def __init__(self, source_format: str, package: str | None = None) -> None:
        self.source_format = source_format
        self._package = package
        self._discovered = package is None
        self.evaluators: ConverterRegistry | None = None
        self.others: Callable[[], Iterable[Registration]] = tuple
        self._versions: dict[tuple[str, str], dict[int, Registration]] = {}
        self._refused: dict[str, str] = {}
        self._selected: dict[tuple[str, str, int | None], Registration] = {}

    def __call__(
        self, *names: str, since: int = 1, domain: str = "", kind: Kind = Kind.DECOMPOSED, limits: str = ""
    ) -> Callable[[F], F]:
        """Return a decorator that registers a function for one or several operators.

        Args:
            names: source operators that share this converter.
            since: first version of the operator with this meaning.
            domain: ONNX operator domain; empty for the default one.
            kind: kind of result.
            limits: restrictions and requirements, for the tables of operators.

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
        """Add one registration.

        Raises:
            UsageError: the name, domain and version already have a registration, or the version is below 1.

        """
        if registration.since < 1:
            raise UsageError(f"{registration.name}: since must be 1 or more, not {registration.since}")
        versions = self._versions.setdefault((registration.domain, registration.name), {})
        other = versions.get(registration.since)
        if other is not None:
            qualified = f"{registration.domain}:{registration.name}" if registration.domain else registration.name
            raise UsageError(
                f"two {self.source_format} converters for '{qualified}' since version {registration.since}: "
                f"{_qualified_name(other.converter)} and {_qualified_name(registration.converter)}",
            )
        versions[registration.since] = registration
        self._selected.clear()

    def find(self, name: str, *, version: int | None = None, domain: str = "") -> Registration | None:
        """Return the registration with the highest ``since`` that is not above ``version``, or None.

        Without a version (Caffe has none), return the registration with the highest ``since``. One with ``since`` above
        ``version`` is never returned, because the operator may have had another meaning before.
        """
        registration = self._selected.get((domain, name, version))
        if registration is None:
            self.discover()
            versions = self._versions.get((domain, name), {})
            usable = [since for since in versions if version is None or since <= version]
            if usable:
                registration = self._selected[domain, name, version] = versions[max(usable)]
        return registration

    def versions(self, name: str, *, domain: str = "") -> tuple[int, ...]:
        """All ``since`` versions of an operator, ascending; empty if it has no converter."""
        self.discover()
        return tuple(sorted(self._versions.get((domain, name), {})))

    def names(self, *, domain: str | None = "") -> tuple[str, ...]:
        """All operator names of a domain, or of every domain for ``domain=None``, sorted."""
        self.discover()
        return tuple(sorted({n for d, n in self._versions if domain is None or d == domain}))

    def domains(self) -> tuple[str, ...]:
        """All domains with at least one converter, sorted."""
        self.discover()
        return tuple(sorted({d for d, _ in self._versions}))

    def entries(self) -> tuple[Registration, ...]:
        """All registrations, sorted by domain, name and version."""
        self.discover()
        registrations = [r for versions in self._versions.values() for r in versions.values()]
        return tuple(sorted(registrations, key=lambda r: (r.domain, r.name, r.since)))

    def all_entries(self) -> tuple[Registration, ...]:
        """All ``entries``, operators that only have an evaluator of constants, and ``others``."""
        entries = self.entries()
        converted = {(entry.domain, entry.name) for entry in entries}
        rest = () if self.evaluators is None else self.evaluators.entries()
        folded = [replace(entry, kind=Kind.FOLDED) for entry in rest if (entry.domain, entry.name) not in converted]
        converted |= {(entry.domain, entry.name) for entry in folded}
        others = [entry for entry in self.others() if (entry.domain, entry.name) not in converted]
        return (*entries, *folded, *others)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Record reasons why operators of the default domain have no converter, for the tables of operators."""
        self._refused.update(reasons)

    @property
    def refusals(self) -> Mapping[str, str]:
        """Operators of the default domain without a converter, with the reason."""
        self.discover()
        return MappingProxyType(self._refused)

    def discover(self) -> None:
        """Import every module of the format's package, unless this was done before."""
        if self._discovered or self._package is None:
            return
        self._discovered = True  # before the imports: a converter module may use the registry while it is imported
        import_modules(self._package)


def _qualified_name(converter: Converter) -> str:
    return f"{getattr(converter, '__module__', '?')}.{getattr(converter, '__qualname__', converter)}"


FORMATS = ("onnx", "tflite", "caffe")
REGISTRIES = {name: ConverterRegistry(name, f"tpuconvert.frontends.{name}") for name in FORMATS}


def registry(source_format: str) -> ConverterRegistry:
    """Return the registry of a format.

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
    """Return a decorator that registers a converter of a plugin.

    The built-in converters are imported first, so that a duplicate name is reported at the plugin's line.

    Args:
        source_format: "onnx", "tflite" or "caffe".
        name: source operator name.
        aliases: further names for the same function.
        domain: ONNX operator domain, such as "com.acme".
        since: first version of the operator with this meaning.

    Raises:
        UsageError: the format is unknown, or a name already has a converter.

    """
    converters = registry(source_format)
    converters.discover()
    register: Callable[[F], F] = converters(name, *aliases, since=since, domain=domain)

    def noting(function: F) -> F:
        note_definition(function)
        return register(function)

    return noting
