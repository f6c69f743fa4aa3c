"""The registry of rewrite rules.

A rule is registered by its decorator when its module is imported. ``rules_of`` and ``rule_names`` first import every
module of ``optimizer.rules``, so that adding a file with a decorated function is enough to add a rule. The rules of a
stage are tried in the order of ``optimizer.rule_order``; unlisted rules follow in the order of their registration.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuconvert.optimizer.engine.pattern import Match, Pattern
from tpuconvert.optimizer.rule_order import ORDER
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import InternalError
from tpuconvert.schema.graph.graph import Graph, Node, Value

RULES_PACKAGE = "tpuconvert.optimizer.rules"


@dataclass(frozen=True)
class Skip:
    """Return value of a rule that declines a match, with the reason."""

    reason: str


Results = tuple[Value | None, ...] | Mapping[Value, Value]
"""New values of a rewrite: one per result of the root, None for an unused result; or, if a rule rewrites a region with
several results, a mapping from each old value that is used outside of the region to its new value."""

Replacement = Value | Results | Skip
"""Return value of a rule: the new value of the root if it has one result, else ``Results``; or a ``Skip``."""

RuleFunction = Callable[[Graph, Match], Replacement]


_STAGES_OF_SOURCES = ("canonicalize", "layout", "fold", "fuse")


@dataclass(frozen=True)
class RewriteRule:
    """A rewrite rule: patterns, stage, and the function that checks the conditions and builds the replacement.

    The engine declines a match if an inner node's result is rounded to a scale of the source file, unless
    ``sees_annotations`` is set: then the rule checks the annotations itself.
    """

    name: str
    patterns: tuple[Pattern, ...]
    stage: str
    apply: RuleFunction
    sees_annotations: bool = False

    @property
    def keeps_kernels(self) -> bool:
        """Return True if the rule must not replace operators that a quantized source computes in integers.

        The lowering for a chip and the rules for calibration replace operators on purpose.
        """
        return self.stage in _STAGES_OF_SOURCES

    def only(self, where: Callable[[Node], bool]) -> RewriteRule:
        """Return the rule restricted to roots for which ``where`` is true."""
        return dataclasses.replace(self, patterns=tuple([pattern.only(where) for pattern in self.patterns]))


_RULES: dict[str, RewriteRule] = {}


def rule(*patterns: Pattern, stage: str, sees_annotations: bool = False) -> Callable[[RuleFunction], RuleFunction]:
    """Register a function as a rule under its name. The patterns are tried in this order.

    Raises:
        ValueError: a rule of this name exists, or there is no such stage.
    """

    def register(function: RuleFunction) -> RuleFunction:
        name = function.__name__
        if name in _RULES:
            raise ValueError(f"two rules are called '{name}'")
        if stage not in ORDER:
            raise ValueError(f"rule '{name}' has the stage '{stage}', expected one of {', '.join(ORDER)}")
        _RULES[name] = RewriteRule(name, patterns, stage, function, sees_annotations)
        return function

    return register


def rules_of(stage: str) -> list[RewriteRule]:
    """The rules of a stage in the order in which they are tried."""
    load_rules()
    position = {name: index for index, name in enumerate(ORDER[stage])}
    rules = [item for item in _RULES.values() if item.stage == stage]
    return sorted(rules, key=lambda item: position.get(item.name, len(position)))


def rule_named(name: str) -> RewriteRule:
    """Return the rule of this name, which must exist."""
    load_rules()
    return _RULES[name]


def rule_names() -> list[str]:
    """The names of all rules, stage by stage, in the order in which they are tried."""
    return [item.name for stage in ORDER for item in rules_of(stage)]


@functools.cache
def load_rules() -> None:
    """Import every module of the rules package, once.

    Raises:
        InternalError: ``rule_order`` lists a name that is not a rule of the stage.
    """
    import_modules(RULES_PACKAGE)
    for stage, names in ORDER.items():
        for name in names:
            if name not in _RULES or _RULES[name].stage != stage:
                raise InternalError(
                    f"optimizer/rule_order.py lists '{name}', which is not a rule of the stage '{stage}'"
                )
