"""List the nodes that run their NumPy reference: ``python -m tools.pages.fallbacks [--zoo FOLDER] [--check]``.

Every model of the data set is converted in float and to INT8 for each chip, every single layer in float, and the
models of a zoo (``python -m tools.zoo``) in float and to INT8. The nodes without a native kernel are
written to docs/inside/kernels.md, grouped by operator, types and reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import data_root, entries
from tools.pages.converted_models import convert_model, is_quantized
from tools.pages.generated_file import replace_part
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.types import Array

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "kernels.md"
CHIPS = ("bm1686", "bm1684", "bm1682")
CALIBRATION = 8
HEADER = """\
# Nodes without a kernel

Made by `python -m tools.pages.fallbacks`: the models of the data set are converted in float and to INT8 for each chip,
and its single layers in float for BM1686. With `--zoo FOLDER` the tool adds the networks of `make zoo`. A node without
a kernel runs its NumPy reference, with the same result. [Operators without a
kernel](#operators-without-a-kernel) has the reasons. `Session.reference_reasons` reports these nodes for any model.
"""

EXCEPTIONS = {
    "the extents of its results depend on data": "NumPy allocates the results; the plans of the other nodes follow",
    "extents depend on data, and this part has no multiply-accumulates": "planning takes longer than running the nodes",
    "a function of a plugin": "the plugin supplies Python code only",
    "its bodies are graphs with plans of their own": "only the loop or the choice of a branch is Python",
}
"""Reasons for which a node needs no kernel, and why."""


@dataclass(frozen=True, order=True)
class Fallback:
    """A kind of node without a kernel: its operator, types of operands and results, and the reason."""

    operator: str
    types: str
    reason: str

    @staticmethod
    def of(node: Node, reason: str) -> Fallback:
        """Describe a node."""
        operand_types, result_types = (
            ", ".join("-" if value is None else value.dtype.name for value in values)
            for values in (node.inputs, node.outputs)
        )
        return Fallback(node.op.name, f"{operand_types} -> {result_types}", reason)


@dataclass
class Survey:
    """Result of converting and planning many models.

    Attributes:
        planned: number of plans.
        nodes: number of nodes of these plans.
        refused: models that were not converted, with the reason.
        found: models by kind of fallback, one entry per node.
    """

    planned: int = 0
    nodes: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    found: dict[Fallback, list[str]] = field(default_factory=dict)

    def add(self, name: str, model: tc.Model, feeds: Mapping[str, Array] | None = None) -> None:
        """Plan a model and record the nodes without a kernel."""
        is_static = all(value.type.is_static for value in model.graph.values)
        fallbacks = fallbacks_of(model, None if is_static else feeds)
        self.planned += 1
        self.nodes += len(model.graph)
        for fallback in fallbacks:
            self.found.setdefault(fallback, []).append(name)

    @property
    def unexplained(self) -> dict[Fallback, list[str]]:
        """The fallbacks whose reason is not an exception."""
        return {fallback: names for fallback, names in self.found.items() if fallback.reason not in EXCEPTIONS}


def fallbacks_of(model: tc.Model, feeds: Mapping[str, Array] | None = None) -> list[Fallback]:
    """Return one entry for each node that runs its reference.

    Args:
        model: the model.
        feeds: run it once with these, which a model with symbolic extents needs.
    """
    with tc.Session(model, backend="native", threads=1) as session:
        if feeds is not None:
            session.run(feeds)
        nodes = {node.name: node for node in model.graph.nodes}
        return [Fallback.of(nodes[name], reason) for name, reason in session.reference_reasons.items()]


def variants(root: Path, name: str, chips: Sequence[str] = CHIPS) -> Iterator[tuple[str, str]]:
    """Yield (chip, variant) of the conversions of a model; BM1682 has no integer arithmetic for float models."""
    for chip in chips:
        if is_quantized(entries(root)[name]):
            yield chip, "source"
            continue
        yield chip, "float"
        if chip != "bm1682":
            yield chip, "int8"


def survey_models(survey: Survey, root: Path, names: Iterable[str], chips: Sequence[str] = CHIPS) -> None:
    """Add models of the data set."""
    for name in names:
        for chip, how in variants(root, name, chips):
            title = f"{name} ({chip}, {how})"
            try:
                model, feeds = convert_model(root, name, chip, how)
            except TpuConvertError as error:
                survey.refused[title] = error.message
                continue
            survey.add(title, model, feeds[0])


def survey_layers(survey: Survey, root: Path, formats: Sequence[str] = ("onnx", "tflite", "caffe")) -> None:
    """Add the single layers of the data set, in float for BM1686."""
    for case in json.loads((root / "layers" / "cases.json").read_text(encoding="utf-8")):
        if case["format"] in formats:
            _survey_layer(survey, root, case)


def _survey_layer(survey: Survey, root: Path, case: Mapping[str, Any]) -> None:
    paths = {suffix.rsplit(".", 1)[-1]: root / path for suffix, path in case["paths"].items()}
    source = next(path for kind, path in paths.items() if kind != "caffemodel")
    with np.load(root / case["io"]) as stored:
        arrays = [stored[f"in{index}"] for index in range(len(case["inputs"]))]
    shapes = {entry["name"]: array.shape for entry, array in zip(case["inputs"], arrays, strict=True) if array.size}
    static_shapes = {name: shape for name, shape in shapes.items() if shape} if case["format"] == "onnx" else None
    try:
        model = tc.convert(
            source, weights=paths.get("caffemodel"), source_options=tc.SourceOptions(input_shapes=static_shapes or {})
        )
        names = [port.name for port in model.graph.input_ports]
        survey.add(case["id"], model, dict(zip(names, arrays, strict=False)))
    except TpuConvertError as error:
        survey.refused[case["id"]] = error.message


def survey_zoo(survey: Survey, folder: Path) -> None:
    """Add the models of a zoo, in float and INT8 for BM1686: the newest opset of each exporter, with a fixed batch."""
    from tools.zoo.files import exports, load_samples  # the zoo is optional

    newest = {(export.network, export.exporter): export for export in exports(folder) if export.batch == "fixed"}
    for export in newest.values():
        path = export.path(folder)
        if not path.exists():
            continue
        samples = load_samples(folder, export.network)
        for how in ("float", "int8"):
            title = f"{export.name} ({how})"
            quantize: dict[str, Any] = {"quantize": "int8", "calibration": samples[:CALIBRATION]}
            try:
                survey.add(title, tc.convert(path, **(quantize if how == "int8" else {})), samples[0])
            except TpuConvertError as error:
                survey.refused[title] = error.message


def page(survey: Survey) -> str:
    """Return the text of the page."""
    left = sum(map(len, survey.found.values()))
    lines = [HEADER, f"{left} of the {survey.nodes} nodes of {survey.planned} converted models have no kernel.", ""]
    if survey.found:
        lines += ["| operator | types | reason | nodes | models | example |", "|---|---|---|---|---|---|"]
        lines += [_row(fallback, names) for fallback, names in sorted(survey.found.items())]
    lines += ["", "Reasons for which a node needs no kernel:", ""]
    lines += [f"- {reason}: {why}." for reason, why in EXCEPTIONS.items()]
    return "\n".join(lines) + "\n"


def _row(fallback: Fallback, names: Sequence[str]) -> str:
    numbers = f"{len(names)} | {len(set(names))} | {names[0]}"
    return f"| `{fallback.operator}` | {fallback.types} | {fallback.reason} | {numbers} |"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or compare it. Return 1 for a stale page, and for fallbacks without an accepted reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--zoo", type=Path, action="append", default=[], help="folder of a zoo; may be repeated")
    parser.add_argument("--models", help="names of models of the data set with commas; all by default")
    parser.add_argument("--no-layers", action="store_true", help="leave out the single layers")
    parser.add_argument("--print", action="store_true", help="print the page and write nothing")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the page is out of date")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    root, survey = data_root(), Survey()
    names = entries(root) if options.models is None else filter(None, options.models.split(","))
    survey_models(survey, root, names)
    if not options.no_layers:
        survey_layers(survey, root)
    for folder in options.zoo:
        survey_zoo(survey, folder)
    text = replace_part(PAGE, "fallbacks", "tools.pages.fallbacks", page(survey))
    for title, reason in survey.refused.items():
        print(f"not converted: {title}: {reason}", file=sys.stderr)
    if options.print:
        print(page(survey))
    elif options.check and text != PAGE.read_text(encoding="utf-8"):
        print("kernels.md is out of date: run python -m tools.pages.fallbacks", file=sys.stderr)
        return 1
    elif not options.check:
        PAGE.write_text(text, encoding="utf-8")
    return int(bool(survey.unexplained))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
