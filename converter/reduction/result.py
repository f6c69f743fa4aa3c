"""The result of ``reduce``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from tpuconvert.frontends.onnx.file.messages import ModelProto
from tpuconvert.reduction.failure import DESCRIPTIONS
from tpuconvert.reduction.source_files import SUFFIXES, WEIGHTS_SUFFIX, SourceFiles, write_files
from tpuconvert.schema.option_style import in_style
from tpuconvert.schema.text.plain_values import Count, Keyword, Seconds
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.text.result import Result
from tpuconvert.text.text_format import several


@dataclass(frozen=True)
class Size:
    """Size of a model.

    Args:
        nodes: number of nodes of the graph.
        constants: number of elements of all constants.
        bytes: size of the serialized model.

    """

    nodes: Count
    constants: Count
    bytes: Count


@dataclass(frozen=True, repr=False)
class Reduction(Result, hidden=("model", "weights")):
    """A model that fails in the same way as a larger one.

    Args:
        file: name of the larger model.
        format: ``onnx``, ``tflite`` or ``caffe``.
        output: the file that was written, or None.
        weights_output: the caffemodel that was written, or None.
        kind: kind of the failure: ``error``, ``verify``, ``backends``, ``engine``, ``condition``, ``crash`` or
            ``timeout``.
        until: the failure that was searched, as a command line states it.
        message: the failure of the larger model.
        reduced_message: the failure of the reduced model.
        before: size of the larger model.
        after: size of the reduced model.
        operators: number of nodes of the reduced model per operator.
        options: options of the conversion and limits that the failure needs.
        plugins: Python files that were loaded.
        random_weights: number of constants with random values.
        kept_weights: number of constants with their own values, because the failure depends on them.
        names: ``generic``, ``ports`` if inputs and outputs keep their names, or ``kept``.
        identifying: custom operators, and texts in their attributes.
        trials: number of trials.
        seconds: duration.
        is_complete: False if the time limit ended the search.
        model: the reduced model: an ``onnx.ModelProto``, the bytes of a TFLite file, or of a prototxt.
        weights: the bytes of the caffemodel of a prototxt, or None.

    """

    file: str
    format: Annotated[str, Keyword("enum", tuple(SUFFIXES))]
    output: str | None
    weights_output: str | None
    kind: Annotated[str, Keyword("enum", tuple(DESCRIPTIONS))]
    until: str
    message: str
    reduced_message: str
    before: Size
    after: Size
    operators: Mapping[str, Annotated[int, Keyword("minimum", 1)]]
    options: Mapping[str, str]
    plugins: Sequence[str]
    random_weights: Count
    kept_weights: Count
    names: Annotated[str, Keyword("enum", ("generic", "ports", "kept"))]
    identifying: Sequence[str]
    trials: Count
    seconds: Seconds
    is_complete: bool
    model: ModelProto | bytes
    weights: bytes | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the reduced model in the format of the source; the caffemodel of a prototxt beside it."""
        content = self.model if isinstance(self.model, bytes) else self.model.SerializeToString()
        write_files(path, SourceFiles(self.format, content, self.weights))

    def lines(self) -> list[str]:
        """Return the sizes, the failure, what was made generic, and what to attach to a report."""
        listed = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in self.operators.items())
        lines = [
            f"{self.file}: {several(self.before.nodes, 'node')} reduced to {self.after.nodes}",
            f"  failure: {DESCRIPTIONS[self.kind]}",
            f"    {one_line(self.message)}",
        ]
        if self.reduced_message != self.message:
            lines.append(f"    reduced model: {one_line(self.reduced_message)}")
        lines += [
            f"  operators: {one_line(listed)}",
            f"  size: {self.before.bytes:,} -> {self.after.bytes:,} bytes, "
            f"{self.before.constants:,} -> {self.after.constants:,} elements of constants",
            f"  weights: {self._weights()}",
            f"  names: {_NAMES[self.names]}",
        ]
        if self.identifying:
            lines.append(f"  check before sharing: {one_line(', '.join(self.identifying))}")
        lines.append(f"  {several(self.trials, 'trial')} in {self.seconds:.1f} s")
        if not self.is_complete:
            lines.append(in_style("  the time limit ended the search: --resume with a larger --budget continues it"))
        if self.output is not None:
            written = self.output if self.weights_output is None else f"{self.output} and {self.weights_output}"
            lines += [f"wrote {written}", f"attach it to a report, with the line: {self.command}"]
        return lines

    @property
    def command(self) -> str:
        """The command line that shows the failure of the reduced model."""
        names = [self.output or f"reduced{SUFFIXES[self.format]}"]
        if self.weights is not None:
            names.append(self.weights_output or f"reduced{WEIGHTS_SUFFIX}")
        options = "".join(f" --{key.replace('_', '-')} {value}".rstrip() for key, value in self.options.items())
        options += "".join(f" --plugin {file}" for file in self.plugins)
        return f"tpuconvert reduce {shlex.join(names)} --until {shlex.quote(self.until)}{options}"

    def _weights(self) -> str:
        if not self.random_weights and not self.kept_weights:
            return "none with more than one element"
        if not self.kept_weights:
            return f"{several(self.random_weights, 'constant')} replaced by random values"
        return (
            f"{several(self.kept_weights, 'constant')} with the original values, because the failure depends on them; "
            f"{self.random_weights} replaced by random values"
        )


_NAMES = {
    "generic": "generic; descriptions and producer removed",
    "ports": "generic, except the names of inputs and outputs, on which the failure depends",
    "kept": "original names, because the failure depends on them",
}
