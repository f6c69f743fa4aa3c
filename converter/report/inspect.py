"""``tpuconvert.inspect``: the contents of a model file or of a source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import AnySource, Weights, open_source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.model.cost import cost_lines, cost_node_lines, group_lines
from tpuconvert.model.description import Description
from tpuconvert.model.model import Model, load
from tpuconvert.model.summary import node_lines, node_rows, summary_text
from tpuconvert.plugins import load_plugins
from tpuconvert.report.compiled_cycles import KEY, compiled_line, read_compiled
from tpuconvert.report.report_description import describe_for_report, describe_source_for_report
from tpuconvert.schema.errors import UsageError
from tpuconvert.text.result import Result


@dataclass(frozen=True, repr=False)
class Inspection(Result):
    """Contents of a converted model, or of a source as it is before the conversion.

    Args:
        description: everything as plain values: name, inputs, outputs, operators, ``layers`` (the nodes), and for a
            converted model chip, notes, recipe and ``cost``.

    """

    description: Description

    @property
    def is_converted(self) -> bool:
        """True for a converted model, False for a source."""
        return "chip" in self.description

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.description["nodes"])

    @property
    def operators(self) -> dict[str, int]:
        """Number of nodes per TPU operator."""
        return dict(self.description["operators"])

    @property
    def cost(self) -> Description | None:
        """Multiply-accumulates, traffic and smallest time on the chip; None for a source."""
        return self.description.get("cost")

    def summary(self) -> list[str]:
        """Return inputs, outputs, operators and notes in a few lines."""
        compiled = self.description.get(KEY)
        return [*summary_text(self.description).split("\n"), *([compiled_line(compiled)] if compiled else [])]

    def tables(self, *, with_nodes: bool = True, with_cost: bool = False, with_groups: bool = False) -> list[str]:
        """Return the table of nodes, and the cost on the chip.

        Args:
            with_nodes: whether to include the table of nodes.
            with_cost: whether to include work, traffic and least time on the chip.
            with_groups: whether to include layer groups for on-chip memory, and the traffic that each saves.

        Raises:
            UsageError: the cost or the groups of a source are requested.

        """
        if self.cost is None:
            if with_cost or with_groups:
                name = self.description["file"] or self.description["name"]
                raise UsageError(
                    f"{name}: the cost and the groups are those on a chip",
                    hint="convert it first, and inspect the .tpum file",
                )
            return ["", *node_lines(self.description)] if with_nodes else []
        lines: list[str] = []
        if with_cost or with_groups:
            costs, groups = cost_lines(self.cost) if with_cost else (), group_lines(self.cost) if with_groups else ()
            lines = ["", *costs, *groups]
        if with_nodes:
            nodes = cost_node_lines(self.description, self.cost) if with_cost else node_lines(self.description)
            lines += ["", *nodes]
        return lines

    def lines(self) -> list[str]:
        """Return the summary and the tables."""
        return [*self.summary(), *self.tables()]

    def to_dict(self) -> dict[str, Any]:
        """Return the description, as printed by ``inspect --json``."""
        return {key: part for key, part in self.description.items() if key != "constants"}

    def _notebook(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        return self.summary(), node_rows(self.description)


def inspect(
    file: Model | AnySource,
    weights: Weights = None,
    *,
    signature: str | None = None,
    proof: str | os.PathLike[str] | None = None,
    plugins: Iterable[str | Path] = (),
) -> Inspection:
    """Describe a converted model, or a source as it is before the conversion.

    Args:
        file: A model, a ``.tpum`` file, or a source as for ``convert``.
        weights: The caffemodel of a prototxt. Without it, weights are taken as zeros.
        signature: Key of the signature, for a TFLite file with several.
        proof: ``proof.json`` of a compiled export of the model, with cycles of the nodes.
        plugins: Python files with custom operators and converters.

    Returns:
        The description, which prints as the command does.

    Raises:
        UsageError: A weights file or a signature for a converted model; a proof of another model, or for a source.
        CorruptInputError: The file is damaged, or not a model.

    Example:
        >>> tc.inspect("digits.tflite").operators["conv"]
        4
        >>> tc.inspect("digits.tflite").is_converted
        False

    """
    load_plugins(plugins)
    if not isinstance(file, Model) and not _is_model_file(file):
        if proof is not None:
            raise UsageError("--proof for a source", hint="name the .tpum file that was exported")
        options = Options.of(signature=signature, allow_non_finite=True)  # non-finite weights can be inspected
        with open_source(file, weights) as opened:
            return Inspection(describe_source_for_report(load_source(opened, options, require_weights=False)))
    if weights is not None:
        raise UsageError(f"{weights!s}: a converted model contains its weights", hint="leave it out")
    if signature is not None:
        raise UsageError("signature for a converted model", hint="leave it out: it belongs to a source")
    model = file if isinstance(file, Model) else load(file)  # type: ignore[arg-type]  # a path
    compiled = None if proof is None else read_compiled(proof, model)
    return Inspection(describe_for_report(model, compiled=compiled))


def _is_model_file(file: object) -> bool:
    kind = SourceFile(file).kind if isinstance(file, (str, os.PathLike)) else None
    return kind is not None and kind.id == "tpum"
