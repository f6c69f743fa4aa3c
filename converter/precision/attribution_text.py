"""Text about the error that each node of a quantized model causes."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.text.styled_text import style
from tpuconvert.text.table import table
from tpuconvert.text.text_format import several, shorten
from tpuconvert.verify.difference import LAYER_SQNR

_WORST = 3
"""Number of nodes that are described in sentences."""

HEADING = ("node", "operator", "SQNR dB alone", "cosine", "flips", "weights dB", "activations dB", "accumulated dB")

_CAUSES = {"weights": "its weights and arithmetic", "activations": "the quantization of its operands"}


def attribution_lines(attribution: Description) -> list[str]:
    """Return the error of the model, sentences about the first nodes with the options that fix them, and the table."""
    lines = [headline(attribution), *unmatched_lines(attribution)]
    if attribution["origin"]:
        lines.append("random numbers are not what ranges are made for: give samples with --data")
    for rank, node in enumerate(attribution["nodes"][:_WORST], start=1):
        lines += [f"{rank}. {sentence(node)}", f"   {node['rule']}", *(f"   {line}" for line in measured_lines(node))]
    return [*lines, *table([HEADING, *map(cells, attribution["nodes"])])]


def headline(attribution: Description) -> str:
    """Return the error of the model and the number of measured nodes."""
    count, model = attribution["integer_nodes"], attribution["model"]
    samples = f"{several(attribution['samples'], 'sample')} {attribution['origin']}".rstrip()
    flips = "" if model["flips"] is None else f", {model['flips']:.1%} of the classes change"
    measured = f"{len(attribution['nodes'])} of {several(count, 'integer node')} measured"
    return f"error at the outputs on {samples}: SQNR {decibel(model)} dB, cosine {number(model)}{flips}; {measured}"


def unmatched_lines(attribution: Description) -> list[str]:
    """Return the line about integer tensors without counterpart in the float network."""
    names = attribution["unmatched"]
    return [f"not attributed: {', '.join(map(shorten, names))}"] if names else []


def sentence(node: Description) -> str:
    """Return the effect of one node and its cause."""
    alone = node["isolated"]
    flips = "" if alone["flips"] is None else f", {alone['flips']:.1%} of the classes change"
    lead = f"'{shorten(node['name'])}' ({node['op']}) alone in integers: {decibel(alone)} dB at the outputs{flips}"
    return f"{lead}; the larger part is from {_CAUSES[node['cause']]}"


def measured_lines(node: Description) -> list[str]:
    """Return the line with the effect of the options, if it was measured."""
    measured = node["measured"]
    if measured is None:
        return []
    numbers = ["exact" if number is None else f"{number:.1f} dB" for number in measured.values()]
    return [f"at the outputs, without refinement of the weights: {' -> '.join(numbers)}"]


def cells(node: Description) -> tuple[str, ...]:
    """Return the table cells of one node."""
    alone = node["isolated"]
    accumulated = node["accumulated_sqnr_db"]
    is_low = alone["sqnr_db"] is not None and alone["sqnr_db"] < LAYER_SQNR
    return (
        shorten(node["name"]),
        node["op"],
        _mark_if(is_low, decibel(alone)),
        number(alone),
        "-" if alone["flips"] is None else _mark_if(alone["flips"] > 0.0, f"{alone['flips']:.1%}"),
        decibel(node["from_weights"]),
        decibel(node["from_activations"]),
        "-" if accumulated is None else f"{accumulated:.1f}",
    )


def _mark_if(condition: bool, text: str) -> str:
    return style(text, "warning") if condition else text


def decibel(noise: Description) -> str:
    """Format the SQNR: decibel, ``exact`` without noise, or ``-`` if it is not finite."""
    if noise["sqnr_db"] is not None:
        return f"{noise['sqnr_db']:.1f}"
    return "exact" if noise["noise"] == 0.0 else "-"


def number(noise: Description) -> str:
    """Format the cosine similarity."""
    return "-" if noise["cosine"] is None else f"{noise['cosine']:.5f}"
