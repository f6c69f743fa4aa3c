"""Write the table of models in the vendor's simulator into docs/inside/simulator.md.

``pytest -m vendor tests/vendor/test_models.py --junitxml build/vendor.xml``, then
``python -m tools.exactness.simulator_table build/vendor.xml``. Several files can be named; a later one counts.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tests.support.networks.data_models import names
from tests.vendor import test_models as cases
from tools.bench.machine import measured_on
from tools.pages.generated_file import replace_part, section

ROOT = Path(__file__).resolve().parents[2]
TOOL = "tools.exactness.simulator_table"
PAGE = ROOT / "docs" / "inside" / "simulator.md"
HEAD = """# Trained models in the vendor's simulator

Each network is exported, compiled and run by `export --compile`, from its input to its output, with up to two
samples. A cell has the number of integer tensors, every element of which equals tpuconvert's, and the largest
difference of floats as a share of their largest magnitude. "After floats": integers that follow from floats, which
may differ by a rounding; their number, and the largest difference in steps. "Host": the share of the
multiply-accumulates that `run.py` computes on the host, and the first operator that it computes. "Level": the level
of layer grouping, if it is not 2. Of some large networks only the outputs are compared.
Empty cells: not compared; BM1684 has no form of quantized sources, whose scales would have to be powers of two.

`make test-vendor` runs these comparisons.

"""
COLUMNS = {
    "bm1684x": ("bm1684x", cases.DEFAULT),
    "bm1688": ("bm1688", cases.DEFAULT),
    "bm1684, float": ("bm1684", cases.FLOAT),
    "bm1684, `--exact-on`": ("bm1684", cases.EXACT),
}
"""Chip and mode of the columns by title."""


def results(paths: list[str]) -> dict[tuple[str, str, str], str]:
    """Map model, chip and mode to the cell of the table."""
    cells = {}
    for case in itertools.chain.from_iterable(ET.parse(path).iter("testcase") for path in paths):
        properties = {str(item.get("name")): str(item.get("value")) for item in case.iter("property")}
        if "case" in properties and "proof" in properties:
            name, chip, mode = properties["case"].split()
            share, host_nodes = json.loads(properties["host"])
            cells[name, chip, mode] = cell(json.loads(properties["proof"]), share, host_nodes)
    return cells


def cell(proof: dict[str, Any], share: float, host_nodes: list[dict[str, str]]) -> str:
    """Return what was compared and how it differs."""
    kinds = {item["kind"]: item for item in proof["tensors"]}
    words = [] if proof["is_accepted"] else ["**differs**"]
    if integers := kinds.get("integers"):
        words.append(f"{integers['equal']} of {integers['tensors']} equal" if words else f"{integers['equal']} equal")
    if after := kinds.get("integers after floats"):
        words.append(f"{after['tensors']} after floats, at most {after['largest_difference']:g}")
    if floats := kinds.get("floats"):
        relative = floats["largest_difference"] / (floats["magnitude"] or 1)
        words.append(f"floats {relative:.0e}" if relative else "floats 0")
    if host_nodes:
        words.append(f"host {share:.1%}, `{host_nodes[0]['operator']}`")
    if proof["level"] != 2:
        words.append(f"level {proof['level']}")
    return "; ".join(words)


def is_success(text: str) -> bool:
    """Return True for a cell of a network that agrees, with at most a twentieth on the host."""
    share = float(text.split("host ")[1].split("%")[0]) if "host " in text else 0.0
    return bool(text) and "differs" not in text and share <= 5


def read_page(text: str) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Return the cells of a page by model and title, and when each column was measured."""
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
    cells = {(row[0], title): cell for row in rows for title, cell in zip(COLUMNS, row[1:], strict=True)}
    return cells, dict(re.findall(r"^- (.*): measured (.*)$", text, re.MULTILINE))


def page(measured: dict[tuple[str, str, str], str], before: str, date: str) -> str:
    """Return the page with new cells. Columns without any keep the cells and the date of the page before."""
    cells, dates = read_page(before)
    new = {title for title, column in COLUMNS.items() if any(key[1:] == column for key in measured)}
    dates |= dict.fromkeys(new, date)

    def cell_of(name: str, title: str) -> str:
        if title in new:
            return measured.get((name, *COLUMNS[title]), "")
        return cells.get((f"`{name}`", title), "")

    rows = [(f"`{name}`", *(cell_of(name, title) for title in COLUMNS)) for name in names()]
    counts = [sum(map(is_success, column)) for column in list(zip(*rows, strict=True))[1:]]
    total = ", ".join(f"{count} on {title}" for count, title in zip(counts, COLUMNS, strict=True))
    lines = [f"- {title}: measured {dates[title]}" for title in COLUMNS if title in dates]
    count = f"Of {len(rows)} models, these agree with at most 5 % of the multiply-accumulates on the host: {total}."
    table = [f"| {' | '.join(row)} |" for row in (("model", *COLUMNS), ["---"] * (1 + len(COLUMNS)), *rows)]
    return HEAD + "\n".join([*lines, "", count, "", *table]) + "\n"


def main() -> None:
    """Write the page."""
    before = section(PAGE, PAGE.read_text(encoding="utf-8"), "models", TOOL)
    text = page(results(sys.argv[1:]), before, measured_on())
    PAGE.write_text(replace_part(PAGE, "models", TOOL, text), encoding="utf-8")


if __name__ == "__main__":
    main()
