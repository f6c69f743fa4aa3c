"""The rules that there are. Their modules are loaded when a graph may need them: a table stands for them until then.

A rule is registered by its decorator, when its module is imported. The table, ``optimizer.rules._table``, has the names
of all rules of this package with their stages, modules and sketches (``optimizer.pattern``), and says by these at which
nodes a rule may start; a tool makes it from the rules themselves. Rules of plugins are in no table: they are there
because somebody has loaded them.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tpuconvert.optimizer.rules
from tpuconvert.optimizer.pattern import Match, Pattern, Sketch, sketch_of
from tpuconvert.optimizer.rules._table import RULES
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph import Graph, Node, Value

PACKAGE = "tpuconvert.optimizer"


@dataclass(frozen=True)
class Skip:
    """Why a rule declined a match."""

    reason: str


Results = tuple[Value | None, ...] | Mapping[Value, Value]
"""The new values: one per result of the root (None for one that nobody reads), or, where a rule rewrites a region that
is read in several places, one for each old value that is read outside of it."""

Replacement = Value | Results | Skip
"""What a rule returns: the new result of the root, or several, or a Skip."""

RuleFunction = Callable[[Graph, Match], Replacement]


@dataclass(frozen=True)
class RewriteRule:
    """One rewrite: its patterns, the stage it runs in, and the function that checks and replaces.

    ``sees_annotations``: the rule itself decides what the annotations of the matched nodes inside allow. For all
    others the engine declines where one of them is rounded to a grid of its own.
    """

    name: str
    patterns: tuple[Pattern, ...]
    stage: str
    apply: RuleFunction
    sees_annotations: bool = False

    @functools.cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        """What its patterns look like, one by one."""
        return tuple([sketch_of(pattern) for pattern in self.patterns])

    def only(self, where: Callable[[Node], bool]) -> RewriteRule:
        """The same rule for those roots of which this holds as well."""
        return dataclasses.replace(self, patterns=tuple([pattern.only(where) for pattern in self.patterns]))


@dataclass(frozen=True)
class UnloadedRule:
    """What the table says of a rule. ``where`` is what must hold of a root besides."""

    name: str
    stage: str
    module: str
    sketches: tuple[Sketch, ...]
    where: Callable[[Node], bool] | None = None

    def loaded(self) -> RewriteRule:
        """The rule itself; its module is imported.

        Raises:
            InternalError: the module has no such rule.
        """
        importlib.import_module(f"{PACKAGE}.{self.module}")
        if self.name not in _RULES:
            raise InternalError(f"{self.module} has no rule '{self.name}': the table of the rules is out of date")
        found = _RULES[self.name]
        return found if self.where is None else found.only(self.where)

    def only(self, where: Callable[[Node], bool]) -> UnloadedRule:
        """The same rule for those roots of which this holds."""
        return dataclasses.replace(self, where=where)


KnownRule = RewriteRule | UnloadedRule

_RULES: dict[str, RewriteRule] = {}


def rule(*patterns: Pattern, stage: str, sees_annotations: bool = False) -> Callable[[RuleFunction], RuleFunction]:
    """Register a rule for one or several patterns, tried in this order. Two rules of one name are an error."""

    def register(function: RuleFunction) -> RuleFunction:
        name = function.__name__
        if name in _RULES or (name in RULES and function.__module__ != f"{PACKAGE}.{RULES[name][1]}"):
            raise ValueError(f"two rules are called '{name}'")
        _RULES[name] = RewriteRule(name, patterns, stage, function, sees_annotations)
        return function

    return register


def known_rules(stage: str) -> list[KnownRule]:
    """The rules of a stage in alphabetical order of their names; nothing is loaded."""
    names = [name for name, row in RULES.items() if row[0] == stage and name not in _RULES]
    names += [item.name for item in _RULES.values() if item.stage == stage]
    return [known_rule(name) for name in sorted(names)]


def known_rule(name: str) -> KnownRule:
    """The rule of that name; nothing is loaded."""
    return _RULES[name] if name in _RULES else UnloadedRule(name, *RULES[name])


def rules_of(stage: str) -> list[RewriteRule]:
    """The rules of a stage in alphabetical order of their names. Every module of the rules folder is loaded."""
    load_rules()
    return [item for item in registered() if item.stage == stage]


def registered() -> list[RewriteRule]:
    """The rules that are loaded, in alphabetical order of their names."""
    return sorted(_RULES.values(), key=lambda item: item.name)


def rule_names() -> list[str]:
    """The names of all rules, in alphabetical order; nothing is loaded."""
    return sorted(RULES.keys() | _RULES.keys())


@functools.cache
def load_rules() -> None:
    """Import every module of the rules folder."""
    import pkgutil  # for the few who want all of them

    for module in sorted(pkgutil.iter_modules(tpuconvert.optimizer.rules.__path__), key=lambda item: item.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{PACKAGE}.rules.{module.name}")
