"""Write the table of models in the vendor's simulator into docs/device-models.md.

``pytest -m vendor tests/vendor/test_models.py --junitxml build/vendor.xml``, then
``python -m tools.exactness.simulator_table build/vendor.xml``. Several files can be named.
"""

from __future__ import annotations

import itertools
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.support.networks.data_models import names
from tests.vendor import test_models as cases
from tools.bench.machine import measured_on

ROOT = Path(__file__).resolve().parents[2]

CHIPS = ("bm1684x", "bm1688", "bm1684")
PAGE = ROOT / "docs" / "device-models.md"
HEAD = """# Trained models in the vendor's simulator

Number of integer tensors that were compared, with up to two samples, between tpuconvert's runtime and the simulator of
the vendor's compiler. Where a number is given, every element of every tensor is equal. "Then float": the network
continues in floating point on the host (`--exact-on`). `make test-vendor` runs these comparisons.
Measured {date}.

"""


def results(paths: list[str]) -> dict[tuple[str, str], str]:
    """Map model and chip to the cell of the table.

    Raises:
        SystemExit: a test failed, or is missing.
    """
    cells = {}
    for case in itertools.chain.from_iterable(ET.parse(path).iter("testcase") for path in paths):
        properties = {item.get("name"): item.get("value") for item in case.iter("property")}
        if "case" not in properties or case.find("failure") is not None:
            continue
        name, chip, _ = str(properties["case"]).split()
        cells[name, chip] = str(properties["tensors"]) + (", then float" if name in cases.FLOAT_END else "")
    missing = [f"{name} on {chip}" for name, chip, _ in cases.CASES if (name, chip) not in cells]
    if missing:
        raise SystemExit(f"{paths}: no success of {', '.join(missing)}")
    return cells


def cell(name: str, chip: str, cells: dict[tuple[str, str], str]) -> str:
    """Return the number of tensors, or why there is none."""
    if (name, chip) in cells:
        note = ", other groups of layers" if (name, chip) in cases.WITHOUT_LAYER_GROUPS else ""
        return cells[name, chip] + note
    if (name, chip) in cases.COMPILER_FAILS:
        return f"compiler: {cases.COMPILER_FAILS[name, chip]}"
    if chip == "bm1684":
        return "not compared" if name in names(is_float=True) else "scales of the source are not powers of two"
    return str(cases.REFUSED[name])


def main() -> None:
    """Write the page."""
    cells = results(sys.argv[1:])
    rows = [(f"`{name}`", *(cell(name, chip, cells) for chip in CHIPS)) for name in names()]
    counts = [sum((name, chip) in cells for name in names()) for chip in CHIPS]
    total = ", ".join(f"{count} on {chip}" for count, chip in zip(counts, CHIPS, strict=True))
    lines = [f"| {' | '.join(row)} |" for row in (("model", *CHIPS), ("---",) * (1 + len(CHIPS)), *rows)]
    text = f"{HEAD.format(date=measured_on())}Of {len(rows)} models, {total} are equal.\n\n" + "\n".join(lines) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
