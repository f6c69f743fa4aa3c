"""Results of a manifest as text, Markdown, JSON, JUnit XML and SARIF 2.1.0."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from tpuconvert.ci.manifest import DEVICE, LIMITS
from tpuconvert.ci.runner import Outcome
from tpuconvert.installed import version
from tpuconvert.schema.text.visible_text import for_json, one_line, visible
from tpuconvert.text.markdown_text import table_code_span
from tpuconvert.text.styled_text import Style, concat, style
from tpuconvert.text.text_format import bytes_text, several

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HOME = "https://pypi.org/project/tpuconvert/"

_MARKS = {"made": "made", "cached": "unchanged", "failed": "**limit not kept**", "error": "**error**"}


_STYLES: dict[str, Style] = {"made": "good", "cached": "good", "failed": "bad", "error": "bad"}


@dataclass(frozen=True)
class CiDocument:
    """Results of the models of a manifest."""

    version: str
    models: Sequence[Outcome]


def to_text(outcome: Outcome) -> str:
    """Format an outcome as one line, followed by its missed limits or its error."""
    facts = f"  ({_facts(outcome)})" if outcome.measures else ""
    line = concat([style(f"{outcome.status:6}", _STYLES[outcome.status]), f" {one_line(outcome.name)}{facts}"])
    notes = [f"note: {outcome.note}"] if outcome.note else []
    reasons = [str(miss) for miss in outcome.misses]
    if outcome.trouble is not None:
        reasons = outcome.trouble.text.splitlines()
    elif reasons and outcome.measures.get("first_difference"):
        reasons.append(f"the first tensor that stands out: {outcome.measures['first_difference']}")
    if "exactness" in outcome.measures:
        reasons.append(outcome.measures["exactness"])
    return concat([line, *(f"       {reason.strip()}" for reason in [*notes, *reasons])], "\n")


def to_markdown(outcomes: Sequence[Outcome]) -> str:
    """Format all outcomes as a Markdown table, followed by the errors."""
    lines = [f"| model | result | {' | '.join(COLUMNS)} |", "|---|---" + "|---" * len(COLUMNS) + "|"]
    for outcome in outcomes:
        lines.append("| " + " | ".join([table_code_span(outcome.name), _MARKS[outcome.status], *cells(outcome)]) + " |")
    for outcome in outcomes:
        if outcome.trouble is not None:
            text = visible(outcome.trouble.text)
            fence = _fence(text)
            lines += ["", f"{table_code_span(outcome.name)} ({outcome.trouble.id})", "", f"{fence}text", text, fence]
    return "\n".join(lines) + "\n"


COLUMNS = ("INT8 nodes", "cosine", "size", "transposes", "device", "limits")


def cells(outcome: Outcome) -> list[str]:
    """Return the table cells of an outcome for ``COLUMNS``."""
    measures = outcome.measures
    if not measures:
        return ["-"] * len(COLUMNS)
    limits = "; ".join(str(miss) for miss in outcome.misses) or ("kept" if outcome.limits else "-")
    integers = f"{measures['integer_nodes']} of {measures['nodes']}"
    size, transposes = bytes_text(measures["size"]), str(measures["transposes"])
    return [integers, f"{measures['cosine']:.5f}", size, transposes, str(measures.get(DEVICE, "-")), limits]


def _fence(text: str) -> str:
    """Fence of a code block: longer than the longest run of backticks in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(3, longest + 1)


def to_junit(outcomes: Sequence[Outcome]) -> str:
    """Format all outcomes as a JUnit test suite with one test case per model."""
    failures = sum(outcome.status == "failed" for outcome in outcomes)
    errors = sum(outcome.status == "error" for outcome in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(failures), "errors": str(errors), "skipped": "0"}
    seconds = sum(_seconds(outcome) for outcome in outcomes)
    root = ElementTree.Element("testsuites", {**counts, "time": f"{seconds:.3f}"})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "tpuconvert", **counts, "time": f"{seconds:.3f}"})
    for outcome in outcomes:
        attributes = {"classname": "tpuconvert.ci", "name": one_line(outcome.name), "file": one_line(outcome.source)}
        case = ElementTree.SubElement(suite, "testcase", {**attributes, "time": f"{_seconds(outcome):.3f}"})
        if outcome.trouble is not None:
            text = visible(outcome.trouble.text)
            message = text.splitlines()[0]
            entry = ElementTree.SubElement(case, "error", {"type": outcome.trouble.id, "message": message})
            entry.text = text
        elif outcome.misses:
            message = "; ".join(str(miss) for miss in outcome.misses)
            entry = ElementTree.SubElement(case, "failure", {"type": "limit", "message": message})
            entry.text = visible(to_text(outcome))
        if outcome.measures:
            ElementTree.SubElement(case, "system-out").text = _facts(outcome)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def to_sarif(outcomes: Sequence[Outcome]) -> str:
    """Format errors and missed limits as SARIF results, located at the source files."""
    results = []
    rules: dict[str, str] = {}
    for outcome in outcomes:
        if outcome.trouble is not None:
            rules[outcome.trouble.id] = "a model that cannot be made"
            results.append(_sarif_result(outcome, outcome.trouble.id, outcome.trouble.text))
        for miss in outcome.misses:
            rule = f"limit-{miss.limit.key}"
            rules[rule] = miss.limit.meaning
            results.append(_sarif_result(outcome, rule, f"{outcome.name}: {miss}"))
    driver = {
        "name": "tpuconvert",
        "version": version(),
        "informationUri": HOME,
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in sorted(rules.items())],
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return for_json(json.dumps(log, indent=2)) + "\n"


def to_annotations(outcomes: Sequence[Outcome]) -> list[str]:
    """Workflow commands by which GitHub Actions shows errors at the source files."""
    return [
        f"::error file={_property(outcome.source)},title={_property(outcome.name)}::{_escape(text)}"
        for outcome in outcomes
        for text in ([outcome.trouble.text] if outcome.trouble is not None else map(str, outcome.misses))
    ]


def _escape(text: str) -> str:
    """Escape the message of a workflow command as GitHub defines it."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command."""
    return _escape(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def _sarif_result(outcome: Outcome, rule: str, text: str) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": quote(outcome.source, errors="surrogateescape")}}}
    return {"ruleId": rule, "level": "error", "message": {"text": text}, "locations": [location]}


def _facts(outcome: Outcome) -> str:
    values = outcome.measures
    parts = [f"{values['integer_nodes']} of {values['nodes']} nodes in integers", bytes_text(values["size"])]
    named = [(limit.key, limit.measure, limit.unit) for limit in LIMITS if limit.key not in ("size", "transposes")]
    parts += [f"{key} {values[name]:.5g}{f' {unit}' if unit else ''}" for key, name, unit in named if name in values]
    parts += [several(values["transposes"], "transpose"), *([str(values[DEVICE])] if DEVICE in values else [])]
    return ", ".join(parts)


def _seconds(outcome: Outcome) -> float:
    return 0.0 if outcome.is_cached else float(outcome.measures.get("seconds", 0.0))
