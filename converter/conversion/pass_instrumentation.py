"""Traces, dumps and validation of the optimizer's passes. They do not change the result of a conversion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tpuconvert.installed import version
from tpuconvert.model.description import describe_graph
from tpuconvert.model.model import Model
from tpuconvert.model.summary import node_lines
from tpuconvert.optimizer.pipeline import Observer, Pass, check_names
from tpuconvert.plugins import plugins_of
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.system.file_replacement import replacing
from tpuconvert.schema.text.visible_text import visible

if TYPE_CHECKING:
    from tpuconvert.conversion.options.options import Options
    from tpuconvert.samples.calibration_data import CalibrationSource

Report = Callable[[str], None]
Sink = Path | Report


@dataclass(frozen=True)
class Watch:
    """Instrumentation of the optimizer's passes.

    Args:
        trace: called with one line per rule and outcome.
        dump_after: name of a pass or rule -> destination for the graph after the pass ran or the rule fired: a
            ``.tpum`` file, another file for text, or a function that takes text. A file is overwritten by each dump.
        validate: whether the graph is run around every pass.
        samples: samples for the validation, in addition to random ones.
    """

    trace: Report | None = None
    dump_after: Mapping[str, Sink] = field(default_factory=dict)
    validate: bool = False
    samples: CalibrationSource | None = None

    def check_names(self) -> None:
        """Check that every name in ``dump_after`` is a rule or pass.

        Raises:
            UsageError: an unknown name.
        """
        check_names([*self.dump_after])

    def observers(self, graph: Graph, options: Options, report: Report) -> list[Observer]:
        """Return the observers for the optimizer; ``report`` receives messages about missing dumps.

        Raises:
            UsageError: the samples do not fit, or an input with dynamic dimensions has no samples.
        """
        observers: list[Observer] = [_Dumper(self.dump_after, options, report)] if self.dump_after else []
        if self.validate:
            # 185 ms: imports the quantizer
            from tpuconvert.conversion.pass_validation import create_validator

            observers.append(create_validator(graph, options, self.samples))
        return observers


class _Dumper(Observer):
    def __init__(self, sinks: Mapping[str, Sink], options: Options, report: Report) -> None:
        self._sinks = sinks
        self._options = options
        self._report = report
        self._silent = dict.fromkeys(sinks)

    def after(self, step: Pass, graph: Graph, fired: Collection[str]) -> None:
        for name in dict.fromkeys((step.name, *fired)):
            if name in self._sinks:
                self._silent.pop(name, None)
                _dump(self._sinks[name], name, graph, self._options)

    def finish(self) -> None:
        for name in self._silent:
            self._report(f"no dump after {name}: it changed nothing")


def _dump(sink: Sink, name: str, graph: Graph, options: Options) -> None:
    graph = copy_graph(graph)  # the copy has its nodes in topological order
    if isinstance(sink, Path) and sink.suffix.lower() == ".tpum":
        _save(sink, graph, options)
        return
    text = "\n".join([f"after {name}: {len(graph)} nodes", *node_lines(describe_graph(graph))])
    if isinstance(sink, Path):
        with replacing(sink) as file:
            file.write(f"{visible(text)}\n".encode())
    else:
        sink(text)


def _save(path: Path, graph: Graph, options: Options) -> None:
    content = FileModel(graph, options.chip, version(), plugins=tuple(plugins_of(graph)))
    Model(content).save(path)
