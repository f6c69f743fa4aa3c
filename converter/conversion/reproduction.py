"""Second conversion with the recipe of a model file (``recipe.py``), and comparison of the bytes."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuconvert.conversion.conversion import Conversion
from tpuconvert.conversion.options.options import OPTIONS, Options, declaration
from tpuconvert.conversion.provenance import make_statement, write_statement
from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges, read_ranges
from tpuconvert.conversion.source import AnySource, Source, Weights, open_source
from tpuconvert.model.model import Model, load, load_converted
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.definition.chip_names import device_of
from tpuconvert.schema.errors import CorruptInputError, ThresholdError, UsageError
from tpuconvert.schema.graph.control_flow import subgraphs_of
from tpuconvert.schema.system.bounded_files import open_regular
from tpuconvert.schema.system.content_digest import ALGORITHM
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.system.input_files import refuse_input
from tpuconvert.schema.types import Array
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import concat, style
from tpuconvert.text.text_format import several

if TYPE_CHECKING:
    from tpuconvert.samples.calibration_data import CalibrationSource
    from tpuconvert.schema.graph.graph import Graph


def read_options(model: Model, allow_root: str | os.PathLike[str] | None = None) -> Options:
    """Return the options stored in a model's recipe. ``allow_root`` is given separately: recipes contain no paths.

    Raises:
        UsageError: the file has no recipe, or one with options that this version does not have.

    """
    return Options.of(chip=model.chip, preprocess=model.preprocess, allow_root=allow_root, **stored_options(model))


def stored_options(model: Model) -> dict[str, Any]:
    """Return the values in a model's recipe, which are not checked.

    Raises:
        UsageError: the file has no recipe, or one with options that this version does not have.

    """
    written = dict(_recipe(model).get("options", {}))
    strange = [name for name in written if name not in OPTIONS or not declaration(name).in_recipe]
    if strange:
        version = model.content.tool_version
        raise UsageError(f"the recipe has the option '{strange[0]}'", hint=f"use tpuconvert {version}, which made it")
    return written


def _recipe(model: Model) -> Mapping[str, Any]:
    recipe = model.metadata.get("recipe")
    if not isinstance(recipe, Mapping):
        raise UsageError("the file says nothing about how it was made", hint="convert its source again")
    return recipe


@dataclass(frozen=True, repr=False)
class Reproduction(Result, added=("is_same",)):
    """Result of a second conversion.

    Args:
        file: name of the model file.
        wanted: SHA-256 of the model file.
        found: SHA-256 of the file written by the second conversion.
        made_by: version of tpuconvert that wrote the model file.
        version: this version.
        difference: first difference as text; empty if the files are equal.

    """

    file: str
    wanted: str
    found: str
    made_by: str
    version: str
    difference: str

    @property
    def is_same(self) -> bool:
        """Return True if both files have the same bytes."""
        return self.wanted == self.found

    def lines(self) -> list[str]:
        """Return whether the bytes are equal, and the digest."""
        if self.is_same:
            verdict = style("reproduced, the bytes are equal", "good")
            return [concat([f"{self.file}: ", verdict]), f"SHA-256 {self.found}"]
        verdict = style("a second conversion gives other bytes", "bad")
        return [concat([f"{self.file}: ", verdict, f": {self.difference}"])]

    def check(self) -> None:
        """Check that the bytes are equal.

        Raises:
            ThresholdError: the files differ; the message has the first difference.

        """
        if self.is_same:
            return
        hint = "the same version gives the same bytes from the same files"
        if self.made_by != self.version:
            hint = f"it was converted by tpuconvert {self.made_by}, this is {self.version}"
        raise ThresholdError(f"a second conversion gives other bytes: {self.difference}", file=self.file, hint=hint)


def reproduce(
    file: str | os.PathLike[str],
    source: AnySource,
    weights: Weights = None,
    *,
    calibration: CalibrationSource | None = None,
    ranges: MeasuredRanges | str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    statement: str | os.PathLike[str] | None = None,
    allow_root: str | os.PathLike[str] | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Reproduction:
    """Convert the source again with the recipe of a model file, and compare the bytes.

    Args:
        file: The ``.tpum`` file.
        source: Its source, as for ``convert``.
        weights: The caffemodel of a prototxt.
        calibration: The samples of the first conversion.
        ranges: The ranges of the first conversion: result of ``calibrate``, or its file.
        output: Path for the new file; None discards it.
        statement: Path for an in-toto statement (SLSA provenance) about the file. It is written only if the bytes are
            equal.
        allow_root: Directory that may contain external data of the source, besides its folder.
        plugins: Python files with custom operators and converters.
        progress: Receives the stages.

    Returns:
        Both digests, and the first difference. ``check`` raises an error if there is one.

    Raises:
        UsageError: The file has no recipe, or the source, its external data or the samples differ from the files of
            the first conversion.

    Example:
        >>> tc.convert("digits.onnx").save("digits.tpum")
        >>> tc.reproduce("digits.tpum", "digits.onnx").is_same
        True

    """
    if statement is not None:
        refuse_input(statement)
    load_plugins(plugins)
    model = load_converted(file, source)
    recipe, options = _recipe(model), read_options(model, allow_root)
    measured = ranges if ranges is None or isinstance(ranges, MeasuredRanges) else read_ranges(ranges)
    with open_source(source, weights) as opened:
        check_source(model, opened, file)
        if calibration is None and "calibration" in recipe:
            count = several(int(recipe["calibration"]["samples"]), "sample")
            raise UsageError(f"{file}: was quantized with {count}", hint="give them: --calibration DATA")
        if (measured is None) != ("ranges" not in recipe):
            needs = "with ranges of a file" if measured is None else "without a file of ranges"
            raise UsageError(f"{file}: was quantized {needs}", hint="--ranges FILE names what calibrate has written")
        if measured is not None:
            _check_same("ranges", recipe["ranges"], measured.digest(), "the given file")
        converted = Conversion(
            options, calibration, ranges=measured, progress=progress or SILENT, device=_device_of(recipe, file)
        ).of_source(opened)
        parts = converted.metadata["recipe"]
        if "external" in parts:
            _check_same("external data", recipe.get("external"), parts["external"][ALGORITHM], _name(opened))
        if "calibration" in recipe:
            digest = parts["calibration"][ALGORITHM]
            _check_same("samples", recipe["calibration"], digest, str(calibration))
        outcome = _compare(file, model, converted, output)
        if statement is not None and outcome.is_same:
            roles = ("source", "weights") if opened.name else ("weights",)
            hashed = {
                role: (os.path.basename(path), file_sha256(path).hex())
                for role, path in zip(roles, opened.files, strict=False)
            }
            text = make_statement(outcome.file, outcome.found, model.chip.name, recipe, hashed, outcome.version)
            write_statement(statement, text)
        return outcome


def _device_of(recipe: Mapping[str, Any], file: str | os.PathLike[str]) -> str:
    """Return the chip of the vendor's compiler in a recipe, or empty text.

    Raises:
        CorruptInputError: the chip does not exist.
    """
    device = recipe.get("device", "")
    if isinstance(device, str) and (not device or device_of(device) == device):
        return device
    raise CorruptInputError(
        f"its recipe has the device {str(device)[:80]!r}", file=os.fspath(file), hint="convert again"
    )


def _compare(
    file: str | os.PathLike[str], model: Model, converted: Model, output: str | os.PathLike[str] | None
) -> Reproduction:
    """Write the new model and compare the bytes of both files."""
    with tempfile.TemporaryDirectory() as folder:
        target = output if output is not None else os.path.join(folder, "again.tpum")
        converted.save(target)
        again = load(target)
        expected, digest = (file_sha256(each).hex() for each in (file, target))
        difference = "" if expected == digest else first_difference(model, again)
    return Reproduction(
        os.path.basename(file), expected, digest, model.content.tool_version, converted.content.tool_version, difference
    )


def check_source(model: Model, source: Source, path: str | os.PathLike[str]) -> None:
    """Check that a source is the one that a model was converted from. ``path`` names the model in messages.

    Raises:
        UsageError: the recipe has other digests, or there is no recipe.

    """
    recipe = _recipe(model)
    _check_same("source", recipe.get("source"), source.digest(), _name(source))
    weights = source.weights
    if (weights is None) != ("weights" not in recipe):
        needs = "a weight file belongs to it" if weights is None else "no weight file belongs to it"
        raise UsageError(f"{path}: was made otherwise: {needs}", hint="give the files of the first conversion")
    if weights is not None:
        _check_same("weights", recipe.get("weights"), file_digest(weights), str(weights))


def _name(source: Source) -> str:
    return source.name or "the given model"


def file_sha256(path: str | os.PathLike[str]) -> bytes:
    """Compute the SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _check_same(what: str, recipe: Any, digest: str, name: str) -> None:
    expected = recipe.get(ALGORITHM) if isinstance(recipe, Mapping) else None
    if not isinstance(expected, str):
        reason = f"its recipe holds no {ALGORITHM} digest of the {what}"
        raise CorruptInputError(reason, hint="convert again, or use the tpuconvert that wrote the file")
    if expected != digest:
        shown = f"{ALGORITHM} {digest[:16]}..., the recipe says {expected[:16]}..."
        raise UsageError(
            f"{name}: not the {what} of the first conversion: {shown}", hint="give the files of the first conversion"
        )


def first_difference(first: Model, second: Model) -> str:
    """Return the first difference of two models as text."""
    for item in fields(first.content):
        if item.name not in ("graph", "tool_version") and getattr(first.content, item.name) != getattr(
            second.content, item.name
        ):
            return f"its {item.name.replace('_', ' ')} differs"
    pairs = itertools.zip_longest(_describe(first.graph), _describe(second.graph))
    for (name, what, array), (other_name, other_what, other_array) in (
        (one or _NOTHING, other or _NOTHING) for one, other in pairs
    ):
        if (name, what) != (other_name, other_what):
            return f"'{name}' is {what}, in the second conversion '{other_name}' is {other_what}"
        if array is not None and other_array is not None and array.tobytes() != other_array.tobytes():
            return f"the constant '{name}' has other elements"
    if first.content.tool_version != second.content.tool_version:
        return "the version in it differs, all else is the same"
    return "the same model is written in another way"


_NOTHING: tuple[str, str, Array | None] = ("(nothing)", "nothing", None)


def _describe(graph: Graph) -> Iterator[tuple[str, str, Array | None]]:
    """Yield (name, description, elements of a constant or None) for each node, then for each value."""
    for node in graph.nodes:
        name = node.outputs[0].name if node.outputs else ""
        yield name, f"{node.op} of {[value and value.name for value in node.inputs]}", None
        for subgraph in subgraphs_of(node.op).values():
            yield from _describe(subgraph.graph)
    for value in graph.values:
        yield value.name, f"{value.type} {value.quant}", value.array if value.is_constant else None
