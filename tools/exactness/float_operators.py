"""Measure every floating-point operator in the vendor's simulator, alone, for each chip and type of floats.

``TPU_MLIR_HOME=... VENDOR_PYTHON=... python -m tools.exactness.float_operators [CHIP ...]`` writes
docs/device-floats.json and docs/device-floats.md.
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
from tpuconvert.exporters.tpu_mlir.chips import TARGETS
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.graph.graph_copy import copy_subgraph

ROOT = Path(__file__).resolve().parents[2]
ROWS, PAGE = ROOT / "docs" / "device-floats.json", ROOT / "docs" / "device-floats.md"
HEAD = f"""# Floating-point operators in the vendor's simulator

Largest difference of each floating-point operator from tpuconvert's runtime, as a share of the largest magnitude, in
the simulator of tpu_mlir {COMPILER_VERSION}. Each branch of `tests/support/vendor/float_families.py` is a program of
its own, and a cell shows its worst branch. "Host": an export leaves the operator to the host.

Operands and results have the type of the column; some operators [compute in FLOAT32](device.md#floating-point) with
every type. A simulator is not a device. `python -m tools.exactness.float_operators` writes this page.

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
        compiled = vendor.run([str(Path(folder, "out", "compile.sh"))], LAYER_GROUP_OPT="1")
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
    return HEAD + "\n".join(lines) + f"\n\nMeasured {date}.\n"


def main() -> None:
    """Measure the chips that are named, by default all, and write the rows and the page."""
    vendor = Vendor(Path(os.environ["TPU_MLIR_HOME"]), os.environ["VENDOR_PYTHON"])
    chips = sys.argv[1:] or list(TARGETS)
    rows = [row for row in (json.loads(ROWS.read_text()) if ROWS.exists() else []) if row["chip"] not in chips]
    for chip in chips:
        for floats in TARGETS[chip].floats:
            for build in FAMILIES:
                family = built(build)
                for output in family.graph.outputs:
                    assert output.producer is not None
                    difference = measure(vendor, family, output, chip, floats)
                    row = {
                        "operator": output.producer.op.name,
                        "branch": re.sub(r"\s+", " ", repr(output.producer.op))[:200],
                        "chip": chip,
                        "floats": floats,
                        "difference": difference,
                    }
                    rows.append(row)
                    print(chip, floats, row["operator"], difference, flush=True)
    ROWS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    PAGE.write_text(page(rows, measured_on()), encoding="utf-8")


if __name__ == "__main__":
    main()
