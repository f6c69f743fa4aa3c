"""Comparison of a model with its source as text."""

from __future__ import annotations

from tpuconvert.model.description import Description
from tpuconvert.text.styled_text import Style, style
from tpuconvert.text.table import number, share, table
from tpuconvert.text.text_format import several, shorten
from tpuconvert.verify.difference import EQUAL_WORDS, LAYER_SQNR, SAME
from tpuconvert.verify.output_tasks import task_lines

NOISIEST = 3
"""Largest number of tensors in the line about quantization noise."""

MANY = 4
"""Largest number of elements of a list that are shown."""


def verification_lines(verification: Description) -> list[str]:
    """Return the comparison with the source as text: the verdict, then a row per tensor."""
    return [*verdict_lines(verification), *noise_lines(verification), *table(verification_rows(verification))]


def verification_rows(verification: Description) -> list[tuple[str, ...]]:
    """Return the table of the compared tensors; the first row is the heading."""
    is_quantized = verification["is_quantized"]
    has_integers = verification["exactness"] is not None
    rows: list[tuple[str, ...]] = [
        ("tensor", "operator", "stage", "max diff", "share of range", "cosine", "SQNR dB")
        + (("noise added", "clipped") if is_quantized else ())
        + (("integers that differ", "steps") if has_integers else ())
    ]
    for entry in [*verification["layers"], *verification["outputs"]]:
        row: tuple[str, ...] = (
            shorten(entry["name"]),
            entry["op"],
            entry["stage"],
            number(entry["max_absolute"]),
            number(entry["relative"]),
            "-" if entry["cosine"] is None else f"{entry['cosine']:.6f}",
            _sqnr_cell(entry, is_quantized=is_quantized),
        )
        if is_quantized:
            row += (share(entry["noise_added"]), share(entry["clipped"]))
        if has_integers:
            row += (
                (
                    style(f"{entry['different']} of {entry['integers']}", _outcome(not entry["different"])),
                    str(entry["steps"]),
                )
                if entry["integers"]
                else ("-", "-")
            )
        rows.append(row)
    return rows


def verdict_lines(verification: Description) -> list[str]:
    """Return a few lines: first significant difference, bit-exactness, the other engine, and problems of outputs."""
    exactness = verification["exactness"]
    lines = [first_line(verification)]
    if exactness is not None:
        lines.append(exactness["verdict"])
    lines += [*task_lines(verification["tasks"]), *state_lines(verification), *opinion_lines(verification)]
    return [*lines, oracle_line(verification), *verification["output_problems"]]


def state_lines(verification: Description) -> list[str]:
    """Return the line about the steps of a model with state."""
    state = verification["state"]
    if state is None:
        return []
    names = ", ".join(f"'{shorten(name)}'" for name in state["names"][:MANY]) + " ..." * (len(state["names"]) > MANY)
    steps = several(state["steps"], "step")
    if state["is_kept"]:
        text = f"state {names}: {steps} in sequence compared, each with the state that the step before left"
    elif state["first_different"]:
        text = (
            f"state {names}: every run starts anew; in {steps} in sequence the outputs differ from the source from "
            f"step {state['first_different']} on (--state ports keeps it)"
        )
    elif state["steps"] > 1:
        text = f"state {names}: every run starts anew; {steps} in sequence compared, no output differs from the source"
    else:
        text = f"state {names}: every run starts anew; no steps in sequence compared"
    engine = f", also with {state['engine']}" if state["engine"] else ""
    return [text + engine + (f"; {state['problem']}" if state["problem"] else "")]


def opinion_lines(verification: Description) -> list[str]:
    """Return the lines about the comparison of the source with another engine."""
    opinion = verification["opinion"]
    if opinion is None or opinion["problem"]:
        return []
    if opinion["exactness"] is not None:
        return [opinion["exactness"]["verdict"], *opinion["contradictions"]]
    count = several(opinion["outputs"], "output")
    count = f"{several(opinion['tensors'], 'tensor')} and {count}" if opinion["is_exact"] else count
    largest = number(opinion["largest_difference"])
    lead = f"the source as {opinion['engine']} computes it"
    return [f"{lead}: {count} compared, largest difference {largest} of a range", *opinion["contradictions"]]


def oracle_line(verification: Description) -> str:
    """Return the line about the program that says what the source computes."""
    oracle = verification["oracle"]
    samples = several(oracle["samples"], "sample")
    if oracle["is_independent"]:
        return f"oracle: {oracle['name']} {oracle['version']}, {samples}"
    reason = f"; not compared with another engine: {oracle['problem']}" if oracle["problem"] else ""
    return f"oracle: the source as tpuconvert {oracle['version']} read it, {samples}{reason}"


def first_line(verification: Description) -> str:
    """Return the line with the number of compared samples and the first tensor with a significant difference."""
    first = verification["first_difference"]
    samples = several(verification["samples"], "sample")
    lead = f"compared with the source on {samples} {verification['origin']}".rstrip()
    if first is None:
        return f"{lead}; no tensor stands out"
    is_below = verification["is_quantized"] and first["stage"] not in ("import", "optimize")
    what = f"first tensor below {LAYER_SQNR:g} dB" if is_below else "first difference"
    return f"{lead}; {what}: '{shorten(first['name'])}' ({first['op']}), stage {first['stage']}"


def noise_lines(verification: Description) -> list[str]:
    """Return the line about the tensors that add most quantization noise."""
    added = {entry["name"]: entry["noise_added"] for entry in verification["layers"]}
    worst = verification["most_noise_added_at"][:NOISIEST] if verification["is_quantized"] else []
    if not worst:
        return []
    listed = ", ".join(f"'{shorten(name)}' ({share(added[name])} of its power)" for name in worst)
    return [f"most noise is added at {listed}"]


def _sqnr_cell(entry: Description, *, is_quantized: bool) -> str:
    """Format the SQNR of a compared tensor with the style of its severity."""
    text = sqnr_text(entry)
    if entry["not_finite"]:
        return style(text, "bad")
    if text == "exact":
        return style(text, "good")
    is_low = is_quantized and entry["sqnr_db"] is not None and entry["sqnr_db"] < LAYER_SQNR
    return style(text, "warning") if is_low else text


def _outcome(is_good: bool) -> Style:
    return "good" if is_good else "warning"


def sqnr_text(entry: Description) -> str:
    """Format the SQNR of a compared tensor: decibel, the number not finite, or a word for equal tensors.

    Equal tensors are ``exact``, unless they depend on a node that is known to deviate from the standard.
    """
    if entry["not_finite"]:
        return f"{entry['not_finite']} not finite"
    if entry["sqnr_db"] is not None:
        return f"{entry['sqnr_db']:.1f}"
    if entry["max_absolute"] != 0.0:
        return "-"
    return EQUAL_WORDS[entry.get("stage", SAME)]
