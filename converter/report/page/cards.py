"""Cards with the key figures of a model, at the top of its article."""

from __future__ import annotations

from typing import NamedTuple

from tpuconvert.model.description import Description
from tpuconvert.report.compiled_cycles import KEY
from tpuconvert.report.output_branches import compared_outputs
from tpuconvert.report.page.elements import FULL_BAR, bar
from tpuconvert.report.report_data import has_cost, integer_shares
from tpuconvert.schema.text.html_text import escape
from tpuconvert.text.text_format import bytes_text, several, time_text
from tpuconvert.verify.difference import AS_READ, EQUAL_WORDS, LAYER_SQNR, SAME
from tpuconvert.verify.text import sqnr_text

_GOOD_SQNR = 30.0
"""SQNR in dB from which an output is marked as good: noise of 0.1 % of the signal power."""


class Card(NamedTuple):
    """One figure.

    Args:
        label: name of the figure.
        value: the figure with its unit.
        detail: one line below it.
        part: length of the bar, from 0 to 1; None without bar.
        kind: ``good``, ``warn`` or empty.

    """

    label: str
    value: str
    detail: str
    part: float | None = None
    kind: str = ""


def cards(description: Description) -> str:
    """Return the cards as HTML."""
    shown = [*_precision(description), *_accuracy(description), *_size(description), *_cost(description)]
    return f'<dl class="cards">\n{"".join(map(_card_html, shown))}</dl>\n'


def _card_html(card: Card) -> str:
    length = "" if card.part is None else bar(card.part)
    kind = f"card {card.kind}".strip()
    return (
        f'<div class="{kind}"><dt>{escape(card.label)}</dt><dd><b>{escape(card.value)}</b>{length}'
        f"<span>{escape(card.detail)}</span></dd></div>\n"
    )


def _precision(description: Description) -> list[Card]:
    total = description["nodes"]
    if description.get("quantize", "none") == "none" or not description["layers"]:
        return [Card("Nodes", f"{total:,}", several(len(description["operators"]), "operator"))]
    count, macs = integer_shares(description)
    detail = f"{count} of {several(total, 'node')}"
    if macs is None:
        return [Card("INT8 nodes", f"{count / total:.0%}", detail, count / total)]
    return [Card("INT8 MACs", f"{macs:.1%}", detail, macs)]


def _accuracy(description: Description) -> list[Card]:
    verification = description.get("verification")
    if not verification:
        return _attributed(description)
    outputs = verification["outputs"]
    if not outputs:
        return []
    inexact = [entry for entry in outputs if entry["max_absolute"] != 0.0]
    if not inexact:
        value = EQUAL_WORDS[AS_READ if any(entry["stage"] == AS_READ for entry in outputs) else SAME]
        return [Card("Outputs", value, "equal to the source on all samples", 1.0, "good")]
    compared = compared_outputs(description)
    shown = [(label, entry) for label, entry in compared if entry["max_absolute"] != 0.0] or [("", inexact[0])]
    label, worst = min(shown, key=lambda pair: float("-inf") if pair[1]["sqnr_db"] is None else pair[1]["sqnr_db"])
    text = sqnr_text(worst)
    value = f"{text} dB" if worst["sqnr_db"] is not None else text
    cosine = "-" if worst["cosine"] is None else f"{worst['cosine']:.6f}"
    detail = f"cosine {cosine}, {several(verification['samples'], 'sample')}"
    lead = f"{label}, " if len(compared) > 1 else ""
    return [_sqnr_card(value, lead + detail, worst["sqnr_db"])]


def _attributed(description: Description) -> list[Card]:
    attribution = description.get("attribution")
    if not attribution:
        return []
    model = attribution["model"]
    sqnr = model["sqnr_db"]
    value = "exact" if sqnr is None and model["noise"] == 0.0 else "-" if sqnr is None else f"{sqnr:.1f} dB"
    cosine = "-" if model["cosine"] is None else f"{model['cosine']:.6f}"
    detail = f"cosine {cosine}, {several(attribution['samples'], 'sample')}"
    return [_sqnr_card(value, detail, sqnr)]


def _sqnr_card(value: str, detail: str, sqnr: float | None) -> Card:
    if sqnr is None:
        return Card("Output SQNR", value, detail)
    kind = "good" if sqnr >= _GOOD_SQNR else "warn" if sqnr < LAYER_SQNR else ""
    return Card("Output SQNR", value, detail, max(0.0, sqnr) / FULL_BAR, kind)


def _size(description: Description) -> list[Card]:
    size = bytes_text(description["constant_bytes"])
    return [Card("Constants", size, f"{description['parameters']:,} numbers")]


def _cost(description: Description) -> list[Card]:
    if not has_cost(description):
        return []
    cost = description["cost"]
    seconds, before = cost["seconds"], cost["seconds_node_by_node"]
    least = f"on {cost['chip']}" + (f", {time_text(before)} node by node" if before > seconds else "")
    traffic = f"{cost['saved']:.0%} saved by {several(len(cost['groups']), 'group')}" if cost["groups"] else "no groups"
    return [
        Card("MACs", _count(cost["macs"]), "multiply-accumulates"),
        Card("Memory traffic", bytes_text(cost["bytes"]), traffic),
        Card("Least time", time_text(seconds), least),
        *_compiled(description),
    ]


def _compiled(description: Description) -> list[Card]:
    compiled = description.get(KEY)
    if compiled is None:
        return []
    detail = f"{compiled['cycles']:,} cycles on {compiled['chip']}, estimate of the vendor's compiler"
    return [Card("Compiled", time_text(compiled["seconds"]), detail, kind="" if compiled["is_accepted"] else "warn")]


def _count(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
