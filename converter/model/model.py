"""A converted model: the result of ``convert``, the content of a file, the program of a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tpuconvert.model.description import describe_model
from tpuconvert.model.summary import node_rows, summary_text
from tpuconvert.plugins import load_plugins
from tpuconvert.runtime.session.border import info
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.file.file_format import read_model
from tpuconvert.schema.file.file_model import FileModel, Note
from tpuconvert.schema.file.file_writer import write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.states import State
from tpuconvert.schema.system.input_files import refuse_input
from tpuconvert.schema.text.html_text import notebook_html
from tpuconvert.schema.types import Chip

if TYPE_CHECKING:
    from tpuconvert.runtime.session.border import TensorInfo


@dataclass(frozen=True)
class Model:
    """A graph of TPU operators for one chip, with notes, preprocessing and recipe.

    Args:
        content: contents of the model file.
        sources: files from which the model was converted; ``save`` refuses to overwrite them. Not stored in the file.

    """

    content: FileModel
    sources: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        """The graph of TPU operators."""
        return self.content.graph

    @property
    def chip(self) -> Chip:
        """The target chip, which supports every operator of the graph."""
        return self.content.chip

    @property
    def quantize(self) -> str:
        """``int8``, or ``none`` for a float model."""
        return self.content.quantize

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes for users: nodes that stay in float, assumed extents, unfinished operators."""
        return self.content.notes

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Facts about the source and the conversion, as plain values."""
        return dict(self.content.metadata)

    @cached_property
    def preprocess(self) -> Preprocess | None:
        """Stored conversion of images to the model's input, or None."""
        return Preprocess.from_mapping(self.content.preprocessing) if self.content.preprocessing else None

    @property
    def states(self) -> tuple[State, ...]:
        """Tensors that a session keeps between runs, such as key-value caches."""
        return self.content.states

    @property
    def inputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the inputs, in the source's order."""
        return [info(port) for port in self.graph.input_ports]

    @property
    def outputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the outputs, in the source's order."""
        return [info(port) for port in self.graph.output_ports]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file. A file of that name is replaced atomically.

        The file is not fsynced: after a power failure it may be truncated, which its digest detects.

        Raises:
            UsageError: the file cannot be written there, or the model was converted from it.

        """
        refuse_input(path, self.sources)
        write_model(path, self.content)

    def summary(self) -> str:
        """Return a description of the model in a few lines."""
        return summary_text(describe_model(self.content))

    def to_dict(self) -> dict[str, Any]:
        """Return the description of the model as plain values; ``tpuconvert.inspect`` adds its cost on the chip."""
        return {**describe_model(self.content)}

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        description = describe_model(self.content)
        return notebook_html(summary_text(description).split("\n"), node_rows(description))

    def __repr__(self) -> str:
        kind = "float" if self.quantize == "none" else self.quantize
        return f"Model({self.graph.name!r}, {self.chip.value}, {kind}, {len(self.graph)} nodes)"


def load_converted(model: Model | str | os.PathLike[str], source: object) -> Model:
    """Return a model, or load its file, for a comparison with its source.

    Raises:
        UsageError: the source is a converted model, or its file.

    """
    if isinstance(source, Model) or (isinstance(source, str | os.PathLike) and _has_suffix(source)):
        name = "" if isinstance(source, Model) else os.fspath(source)
        raise UsageError(
            "a converted model where its source is expected", file=name, hint="give the ONNX, TFLite or Caffe file"
        )
    return model if isinstance(model, Model) else load(model)


def _has_suffix(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(".tpum")


def load(path: str | os.PathLike[str]) -> Model:
    """Read a ``.tpum`` file. Constants are memory-mapped; the whole file is verified first.

    Raises:
        UsageError: the file cannot be read.
        CorruptInputError: the file is damaged, something else, or uses operators of a plugin that is not loaded.

    """
    load_plugins()
    model = Model(read_model(path))
    recipe = model.metadata.get("recipe")
    if recipe is not None and not _is_recipe(recipe):
        hint = "convert again; sessions can still run the file"
        raise CorruptInputError("its recipe has values of wrong types", file=os.fspath(path), hint=hint)
    return model


_COUNTS = {"calibration": "samples", "ranges": "samples", "external": "files"}
"""Parts of a recipe with a number of samples or files."""


def _is_recipe(recipe: Any) -> bool:
    """Return True if commands can read the recipe of a file: a mapping of mappings, which may be any JSON."""
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("options", {}), Mapping):
        return False
    parts = [(recipe[name], count) for name, count in _COUNTS.items() if name in recipe]
    return all(isinstance(part, Mapping) and type(part.get(count)) is int for part, count in parts)
