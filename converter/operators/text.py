"""The description of one operator as plain text, for a terminal."""

from __future__ import annotations

from tpuconvert.operators.description import OperatorDescription
from tpuconvert.text.table import table


def description_lines(about: OperatorDescription) -> list[str]:
    """Format a description of one operator as sections, each with a heading and indented content."""
    lines = [about.signature, "", about.formula, *about.details, f"Family: {about.family}", ""]
    lines += ["operands and results", *_indent(_operand_rows(about))]
    if about.parameters:
        lines += ["", "parameters", *_parameter_lines(about)]
    lines += ["", "data types"]
    for chip in about.chips:
        cases = list(chip.cases)
        said = "; ".join(chip.notes)
        lines += [f"  {chip.chip}{f': {said}' if said else ''}", *(f"    {case}" for case in cases)]
    lines += ["", "locality", f"  {about.locality}"]
    lines += ["", "in Python", f"  from {about.module} import {about.definition}"]
    if about.example:
        lines += ["", "example", *(f"  {line}" for line in about.example)]
    return [line.replace("``", "") for line in lines]


def _operand_rows(about: OperatorDescription) -> list[tuple[str, ...]]:
    rows = [(item.name, item.symbol or "-", item.about) for item in about.operands]
    return [*rows, *((item.name, item.symbol or "-", f"result, {item.about}") for item in about.results)]


def _parameter_lines(about: OperatorDescription) -> list[str]:
    """Return one row per parameter. The values of an enumeration are on a separate line, because there can be many."""
    rows: list[tuple[str, ...]] = [
        (item.name, item.type, "required" if item.default is None else f"default {item.default}", item.meaning)
        for item in about.parameters
    ]
    lines = []
    for item, row in zip(about.parameters, _indent(rows), strict=True):
        lines.append(row)
        if item.values:
            lines.append(f"      {', '.join(item.values)}")
    return lines


def _indent(rows: list[tuple[str, ...]]) -> list[str]:
    return [f"  {line}" for line in table(rows, has_heading=False)]
