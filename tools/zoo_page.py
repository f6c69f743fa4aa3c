"""The page about a zoo: networks, exporters and opsets with their outcomes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnxruntime
from zoo_files import Made, exports
from zoo_running import OK, OUTCOMES, Outcome


def page(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Return the page in Markdown."""
    made = Made.load(folder)
    by = f"PyTorch {made.torch.partition('+')[0]}" if made else "PyTorch"
    counts = Counter(outcome.outcome for outcome in outcomes)
    lines = [
        "# Exporters",
        "",
        "<!-- Made by `python tools/zoo.py run FOLDER --markdown docs/exporters.md`. -->",
        "",
        "Well-known network architectures with random weights, exported by both exporters of",
        f"{by} with batch 1 and with a dynamic batch. Each model is converted in float and compared with",
        f"its source and with ONNX Runtime {onnxruntime.__version__}. Then it is converted to INT8 with eight samples,",
        "and compared again on these. A dynamic batch runs with extents 1 and 3. The networks are in",
        "`tools/zoo_networks/`. These commands write the page:",
        "",
        "```text",
        "python tools/zoo.py make FOLDER",
        "python tools/zoo.py run FOLDER --markdown docs/exporters.md",
        "```",
        "",
        "The first command needs the extra `zoo` (PyTorch), the second does not; `make zoo` runs each in a",
        "separate environment.",
        "",
        "| outcome | models | meaning |",
        "|---|---|---|",
        *(f"| {name} | {counts[name]} | {meaning} |" for name, meaning in OUTCOMES.items()),
        f"| all | {len(outcomes)} | |",
        f"| not run | {sum(1 for _ in exports(folder)) - len(outcomes)} | exported, and left out of this run |",
        "",
        "## Networks",
        "",
        "Cosine and SQNR are the smallest of all INT8 outputs, compared with the float outputs of ONNX Runtime. The",
        "share is that of multiply-accumulates computed in integers, for static shapes.",
        "",
        "| network | exporter | batch | opsets | outcome | cosine | SQNR, dB | share |",
        "|---|---|---|---|---|---|---|---|",
        *_rows(outcomes),
    ]
    reasons = _reasons(outcomes)
    if reasons:
        lines += ["", "## Reasons", "", "| models | outcome | reason | networks |", "|---|---|---|---|", *reasons]
    return "\n".join(lines) + "\n"


def _rows(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one row for each group of opsets with the same outcome."""
    groups: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        export = outcome.export
        groups.setdefault((export.network, export.exporter, export.batch, outcome.outcome), []).append(outcome)
    rows = []
    for (network, exporter, batch, end), group in groups.items():
        opsets = ", ".join(str(outcome.export.opset) for outcome in group)
        cosine = _range([outcome.cosine for outcome in group], 4)
        sqnr = _range([outcome.sqnr for outcome in group], 1)
        share = _range([None if outcome.share is None else 100 * outcome.share for outcome in group], 0, " %")
        rows.append(f"| {network} | {exporter} | {batch} | {opsets} | {end} | {cosine} | {sqnr} | {share} |")
    return rows


def _range(values: Iterable[float | None], digits: int, unit: str = "") -> str:
    """Return the smallest and the largest value as text, or one value if they round to the same text."""
    known = [value for value in values if value is not None]
    texts = dict.fromkeys(f"{value:.{digits}f}" for value in (min(known), max(known))) if known else {}
    return " to ".join(texts) + unit if texts else ""


def _reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one row for each reason, the most frequent ones first."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.outcome != OK:
            text = f"{outcome.stage}: {outcome.reason}" if outcome.stage else outcome.reason
            groups.setdefault((outcome.outcome, text.replace("|", "/")), []).append(outcome)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"| {len(group)} | {end} | {reason} | {', '.join(dict.fromkeys(one.export.network for one in group))} |"
        for (end, reason), group in ordered
    ]
