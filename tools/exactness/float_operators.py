"""Measure every floating-point operator in the vendor's simulator, alone, for each chip and type of floats.

``TPU_MLIR_HOME=... VENDOR_PYTHON=... python -m tools.exactness.float_operators [CHIP[:TYPE] ...]`` writes
docs/inside/device-floats.json and docs/inside/simulator.md.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tests.support.vendor.float_families import FAMILIES, Family, built
from tests.support.vendor.vendor_tools import Vendor
from tools.bench.machine import measured_on
from tools.pages.generated_file import replace_part
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph

ROOT = Path(__file__).resolve().parents[2]
ROWS, PAGE = ROOT / "docs" / "inside" / "device-floats.json", ROOT / "docs" / "inside" / "simulator.md"
HEAD = f"""# Floating-point operators in the vendor's simulator

Largest difference of each floating-point operator from tpuconvert's runtime, as a share of the largest magnitude, in
the simulator of tpu_mlir {COMPILER_VERSION}. Each branch of `tests/support/vendor/float_families.py` is a program of
its own, and a cell shows its worst branch. "Host": an export leaves the operator to the host. Empty: not measured.

Operands and results have the type of the column; some operators
[compute in FLOAT32](../guides/board.md#floating-point) with every type.
`python -m tools.exactness.float_operators` writes this section.

"""


def measure(vendor: Vendor, family: Family, output: Value, chip: str, floats: str) -> float | str:
    """Return the largest relative difference of one branch, or why it has none."""
    graph = copy_subgraph(family.graph, [value for value in family.graph.inputs if depends(output, value)], [output])
    feed = {value.name: family.feed[value.name] for value in graph.inputs}
    model = tc.Model(FileModel(graph, TARGETS[chip].chip, "0", "none"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            exported = tc.export(model, Path(folder, "out"), chip=chip, data=[feed], floats=floats)
        except tc.TpuConvertError:
            return "host"
        if exported.manifest["host_nodes"]:
            return "host"
        compiled = vendor.run([str(Path(folder, "out", "compile.sh"))])
        if compiled.returncode:
            return "compiler"
        done = vendor.run([vendor.python, str(Path(folder, "out", "run_bmodel.py")), str(Path(folder, "found.npz"))])
        if not Path(folder, "found.npz").exists():
            return f"simulator {done.returncode}"
        found = np.load(Path(folder, "found.npz"))[output.name].astype(np.float64)
        expected = np.load(Path(folder, "out", "expected.npz"))[output.name].astype(np.float64)
    finite = np.isfinite(expected)
    magnitude = np.abs(expected[finite]).max(initial=0) or 1.0
    return float(np.abs(found - expected)[finite].max(initial=0) / magnitude)


def depends(output: Value, value: Value) -> bool:
    """Return True if a value is computed from another one."""
    stack, seen = [output], {output}
    while stack:
        current = stack.pop()
        if current is value:
            return True
        if current.producer is not None:
            new = [one for one in current.producer.inputs if one is not None and one not in seen]
            seen.update(new)
            stack += new
    return False


def text_of(cells: list[float | str]) -> str:
    """Return the cell of an operator: its worst branch."""
    words = [cell for cell in cells if isinstance(cell, str)]
    numbers = [cell for cell in cells if not isinstance(cell, str)]
    if not numbers:
        return words[0]
    text = f"{max(numbers):.0e}" if max(numbers) else "0"
    return f"{text}, {len(words)} of {len(cells)} {words[0]}" if words else text


def page(rows: list[dict[str, object]], date: str) -> str:
    """Return the page."""
    columns = [(chip, floats) for chip, target in TARGETS.items() for floats in target.floats]
    cells: dict[str, dict[tuple[str, str], list[float | str]]] = {}
    for row in rows:
        of_operator = cells.setdefault(str(row["operator"]), {})
        of_operator.setdefault((str(row["chip"]), str(row["floats"])), []).append(row["difference"])  # type: ignore[arg-type]
    lines = [
        f"| operator | {' | '.join(f'{chip} {floats}' for chip, floats in columns)} |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for operator in sorted(cells):
        texts = [text_of(cells[operator][column]) if column in cells[operator] else "" for column in columns]
        lines.append(f"| `{operator}` | {' | '.join(texts)} |")
    return f"{HEAD}Measured {date}.\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Measure the chips or types that are named, by default all; write rows and page after each type of a chip."""
    vendor = Vendor(Path(os.environ["TPU_MLIR_HOME"]), os.environ["VENDOR_PYTHON"])
    wanted = [name.partition(":")[::2] for name in sys.argv[1:] or TARGETS]
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else []
    for chip, kind in wanted:
        for floats in [kind] if kind else TARGETS[chip].floats:
            rows = [row for row in rows if (row["chip"], row["floats"]) != (chip, floats)]
            rows += measure_type(vendor, chip, floats)
            ROWS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
            text = replace_part(PAGE, "floats", "tools.exactness.float_operators", page(rows, measured_on()))
            PAGE.write_text(text, encoding="utf-8")


def measure_type(vendor: Vendor, chip: str, floats: str) -> list[dict[str, object]]:
    """Return a row for each branch of the families, in one type of a chip."""
    rows: list[dict[str, object]] = []
    for build in FAMILIES:
        family = built(build)
        for output in family.graph.outputs:
            assert output.producer is not None
            if output.producer.op.name == "copy":
                continue  # a program of it has no operation
            branch = re.sub(r"\s+", " ", repr(output.producer.op))[:200]
            row = {"operator": output.producer.op.name, "branch": branch, "chip": chip, "floats": floats}
            rows.append({**row, "difference": measure(vendor, family, output, chip, floats)})
            print(chip, floats, output.producer.op.name, rows[-1]["difference"], flush=True)
    return rows


if __name__ == "__main__":
    main()
