"""The two sides of a comparison: models, graphs, and files of either."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import Options, names_of
from tpuconvert.conversion.options.quantization import Quantization
from tpuconvert.conversion.reproduction import stored_options
from tpuconvert.conversion.source import Source, unexpected_second_file
from tpuconvert.conversion.source_loading import load_source, with_preprocessing_of
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.model.model import Model, load
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import TpuConvertError, UsageError
from tpuconvert.schema.graph.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

Compared: TypeAlias = "str | os.PathLike[str] | ModelProto | Model | Graph"
"""A model to compare: a path, a model, a graph, or an ONNX model in memory."""

_ONLY_INT8 = ("quantize", *names_of(Quantization))


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Args:
        name: name of the file, otherwise of the graph.
        graph: the compared graph.
        model: the model; None for a graph that was not converted.
        is_source: True if the model was converted for the comparison, so that it has no settings of its own.
        file_bytes: size of the model file; None without one.

    """

    name: str
    graph: Graph
    model: Model | None = None
    is_source: bool = False
    file_bytes: int | None = None

    @property
    def preprocess(self) -> Preprocess | None:
        """Preprocessing of images that the model stores, or None."""
        return None if self.model is None else self.model.preprocess

    @property
    def has_settings(self) -> bool:
        """Return True for a finished model, whose settings and notes can be compared."""
        return self.model is not None and not self.is_source


def load_sides(
    first: Compared,
    second: Compared,
    weights: tuple[str | os.PathLike[str] | None, str | os.PathLike[str] | None],
    options: Mapping[str, Any],
    *,
    as_read: bool,
) -> tuple[Side, Side]:
    """Read both models. A source is converted in float, as the other model was, unless it is compared ``as_read``.

    Raises:
        TpuConvertError: a file cannot be read or converted.

    """
    pair = (first, second)
    models = [_load_model(each, file) for each, file in zip(pair, weights, strict=True)]
    if options and all(model is not None or isinstance(each, Graph) for each, model in zip(pair, models, strict=True)):
        hint = "leave them out, or compare a source"
        raise UsageError(f"options of a source ({', '.join(options)}), but no source is compared", hint=hint)
    sides = []
    for number, (each, model) in enumerate(zip(pair, models, strict=True)):
        if model is not None:
            path = os.fspath(each) if isinstance(each, (str, os.PathLike)) else None
            name = os.path.basename(path) if path is not None else model.graph.file or model.graph.name
            size = os.path.getsize(path) if path is not None else None
            sides.append(Side(name, model.graph, model, file_bytes=size))
        elif isinstance(each, Graph):
            sides.append(Side(each.file or each.name, each))
        else:
            assert not isinstance(each, Model)
            sides.append(_load_source(Source(each, weights[number]), models[1 - number], options, as_read=as_read))
    return sides[0], sides[1]


def _load_model(model: Compared, weights: str | os.PathLike[str] | None) -> Model | None:
    """Return the model if a finished one is given, otherwise None."""
    if isinstance(model, (Model, Graph)) and weights is not None:
        raise unexpected_second_file(weights)
    if isinstance(model, Model):
        return model
    if not isinstance(model, (str, os.PathLike)):
        return None
    kind = SourceFile(model).kind
    if kind is None or kind.id != "tpum":
        return None
    if weights is not None:
        raise UsageError(f"{weights}: a .tpum file contains its weights", file=str(model), hint="leave the weights out")
    return load(model)


def _load_source(
    source: Source,
    other: Model | None,
    requested: Mapping[str, Any],
    *,
    as_read: bool,
) -> Side:
    """Read a source, and convert it with the options of the other model's recipe that are not about quantization."""
    written: dict[str, Any] = {}
    if other is not None:
        stored = stored_options(other) if "recipe" in other.metadata else {}
        written = {name: value for name, value in stored.items() if name not in _ONLY_INT8}
        written["chip"] = other.chip
    reading = {"allow_non_finite": True} if as_read else {}  # as for inspect
    options = Options.of(**{**written, **reading, **requested})
    if other is not None and options.fuse_preprocess != "none":
        options = options.for_model(other.preprocess)
    name = os.path.basename(source.name)
    graph = load_source(source, options)
    if as_read:
        return Side(name or graph.file or graph.name, graph)
    options = with_preprocessing_of(graph, options)
    try:
        model = Conversion(options).of_graph(graph)
    except TpuConvertError as error:
        error.file = error.file or source.name
        error.hint = f"{error.hint}\n" if error.hint else ""
        error.hint += "or compare the source without conversion: --as-read"
        raise
    preprocessing = other.content.preprocessing if other is not None and options.preprocess is None else None
    if preprocessing:
        model = Model(replace(model.content, preprocessing=preprocessing))
    return Side(name or graph.file or graph.name, model.graph, model, is_source=True)
