"""Export of a converted model to another toolchain."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from tpuconvert.exporters.bucket_graphs import graph_of_bucket
from tpuconvert.exporters.compilation.compiled_export import TIME_LIMIT, Compilation, export_compiled
from tpuconvert.exporters.compilation.environment import script_call
from tpuconvert.exporters.compilation.proof import Proof, describe_proof, file_sha256
from tpuconvert.exporters.decoder_export import TO_COMPILER, describe_check, export_decoder
from tpuconvert.exporters.folder import MANIFEST, write_folder
from tpuconvert.exporters.manifest import Manifest
from tpuconvert.exporters.onnx_model.package import export_onnx, lower_model
from tpuconvert.exporters.request import FLOATS, Request
from tpuconvert.exporters.tpu_mlir.lowering import INTEGERS
from tpuconvert.exporters.tpu_mlir.package import (
    CHIPS,
    COMPILE_SCRIPT,
    GENERATE_SCRIPT,
    export_tpu_mlir,
    lower_for_chip,
)
from tpuconvert.exporters.tpulang.package import CHIPS as TPULANG_CHIPS
from tpuconvert.exporters.tpulang.package import PROGRAM, export_tpulang, lower_for_tpulang
from tpuconvert.model.model import Model, load
from tpuconvert.plugins import load_plugins
from tpuconvert.progress import SILENT, Progress
from tpuconvert.schema.errors import ThresholdError, UsageError
from tpuconvert.schema.graph.shape_buckets import KEY, Bucket, buckets_of, format_bucket
from tpuconvert.schema.system.content_digest import ALGORITHM
from tpuconvert.schema.system.file_digest import file_digest
from tpuconvert.schema.system.input_files import refuse_input, refuse_inputs_below
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.schema.types import Chip
from tpuconvert.text.result import Result
from tpuconvert.text.styled_text import style


@dataclass(frozen=True)
class Form:
    """An export target.

    Args:
        chips: chips whose models can be exported.
        check: raises UnsupportedError if a model of these chips has nodes without an exact form.
        write: writes the file or folder and returns its manifest.
        title: one line about an export, with fields of the manifest in braces.
        next_step: next step of the user, a shell command where it is one, by the exported path.
        exact_on: values of the option ``exact_on`` without which models of a chip have no exact form.
        compile: writes the folder with the compiled program, and returns its manifest and proof; None without compiler.
    """

    chips: tuple[Chip, ...]
    check: Callable[[Model], object]
    write: Callable[[Request], dict[str, Any]]
    title: str
    next_step: Callable[[Path], str]
    exact_on: Mapping[Chip, str] = field(default_factory=dict)
    compile: Callable[[Request, Compilation], tuple[dict[str, Any], Proof]] | None = None


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "tpu-mlir": Form(
            CHIPS,
            lower_for_chip,
            export_tpu_mlir,
            "{name} for {chip}, {compiler}",
            lambda path: script_call(path / COMPILE_SCRIPT),
            {Chip.BM1684: "bm1684"},
            export_compiled,
        ),
        "tpulang": Form(
            TPULANG_CHIPS,
            lower_for_tpulang,
            export_tpulang,
            "{name} for {chip}, a TPULang program for {compiler}",
            lambda path: script_call(path / PROGRAM, is_python=True),
        ),
        "onnx": Form(
            tuple(Chip),
            lower_model,
            export_onnx,
            "{name} with the arithmetic of {chip}, ONNX operator set {opset}",
            lambda path: f"open {path} in ONNX Runtime",
        ),
    }
)
"""Export targets by name: the names in ``FORM_NAMES``."""


@dataclass(frozen=True, repr=False)
class Export(Result, hidden=("to",), keys={"manifest": "*"}):
    """Result of an export.

    Attributes:
        path: the exported folder, or the ONNX file.
        manifest: contents of ``export.json``: names, types and scales of inputs and outputs, and operators that remain
            for the host. An ONNX file has most of this in its metadata.
        proofs: contents of each ``proof.json``, by the name of its folder; empty without ``compile``.
        to: the target.
    """

    path: Path
    manifest: Annotated[dict[str, Any], Manifest]
    proofs: Annotated[Mapping[str, Any], Mapping[str, Proof]] = field(default_factory=dict)
    to: str = ""

    def check(self) -> None:
        """Check that every compiled program computes what tpuconvert computes.

        Raises:
            ThresholdError: a program differs.

        """
        for name, proof in self.proofs.items():
            if not proof["is_accepted"]:
                count, first = len(proof["differing"]), one_line(proof["differing"][0]["name"])
                text = f"{count} tensors of the compiled program differ, the first is '{first}'"
                hint = f"do not use {name}; compare each tensor: --with-checks"
                raise ThresholdError(text, file=str(self.path), hint=hint)

    def lines(self) -> list[str]:
        """Return the target, the outputs, the operators that remain for the host, and the next step."""
        form = FORMS[self.to]
        lines = [form.title.format_map(self.manifest)]
        programs = self.manifest.get("programs", ())
        if programs:
            lines += [f"  program  {self.path / name}" for name in programs]
            for name, proof in self.proofs.items():
                lines += [f"  {name}", *describe_proof(proof)]
            if "decoder" in self.manifest:
                lines.append(describe_check(self.manifest["decoder"]))
            if "decoder" in self.manifest and self.to == TO_COMPILER:
                generate = script_call(self.path / GENERATE_SCRIPT, "1,2,3", "8", is_python=True)
                return [*lines, f"next: {form.next_step(self.path)}", f"then: {generate}"]
            if self.proofs:
                return [*lines, f"wrote {self.path}"]
            following = form.next_step(self.path / programs[0])
            return [*lines, f"wrote {self.path}", f"next: {following}", "then the same for the other programs"]
        for output in self.manifest.get("results", self.manifest["outputs"]):
            where = "" if output.get("source", "program") else ", on the host"
            lines.append(f"  output  {output['name']}  {output['dtype']}{output['shape']}{where}")
        lines += describe_host(self.manifest)
        for proof in self.proofs.values():
            lines += [*describe_proof(proof), f"wrote {self.path}"]
            return (
                [*lines, f"next: on a device, python3 {shlex.quote(f'{self.path}/run.py')}"]
                if proof["is_accepted"]
                else lines
            )
        return [*lines, f"wrote {self.path}", f"next: {form.next_step(self.path)}"]


LARGE_SHARE = 0.05
"""Share of the multiply-accumulates on the host from which a line of the summary is a warning."""


def _counted(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def describe_host(manifest: Mapping[str, Any]) -> list[str]:
    """Return a line for each node without a form on the device, and one for all that the host computes."""
    nodes = manifest.get("host_nodes", ())
    lines = [f"  host    {node['operator']} '{node['name']}': {node['reason']}" for node in nodes if node["reason"]]
    if nodes:
        share = manifest["host_share"]
        others = len(nodes) - len(lines)
        after = f", and {_counted(others)} after {'it' if len(lines) == 1 else 'them'}" if others else ""
        text = (
            f"  host    computes {_counted(len(lines))} without a form{after}: {share:.1%} of the multiply-accumulates"
        )
        lines.append(style(text, "warning") if share > LARGE_SHARE else text)
    return lines


def export(
    model: Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    to: str = "tpu-mlir",
    chip: str | None = None,
    data: Any = None,
    with_checks: bool = False,
    floats: str = FLOATS[0],
    integer_io: bool = False,
    decoder_context: int | None = None,
    compile: bool = False,
    time_limit: float = TIME_LIMIT,
    layer_groups: int | None = None,
    plugins: Iterable[str | Path] = (),
    progress: Progress = SILENT,
) -> Export:
    """Export a model to the format of another toolchain, with bit-exact integers.

    Args:
        model: a converted model, or the path of a ``.tpum`` file.
        path: folder to write, or file for ``onnx``. A file or the folder of an earlier export is replaced; any other
            existing folder is an error. For a model with shape buckets, a folder with one program for each.
        to: the target; ``tpu-mlir`` is the vendor's compiler, ``tpulang`` a Python program of its TPULang API,
            ``onnx`` a file of standard ONNX operators.
        chip: ``bm1684x``, ``bm1688`` or, for ``tpu-mlir``, ``bm1684``; default the first one that executes
            the model, ``bm1684x`` or ``bm1684``.
        data: for ``tpu-mlir`` and ``tpulang``: inputs to store with their expected results, as ``calibration`` of
            ``convert``. Default: random numbers.
        with_checks: let the exported program return every integer tensor, to locate differences.
        floats: type in which a ``tpu-mlir`` program computes floating-point operators: ``f32``, ``f16`` or ``bf16``.
            Operators that the chip has in FLOAT32 only are computed in that.
        integer_io: let a ``tpu-mlir`` program take the integers that the model makes of its inputs, and return the
            integers of which it makes its outputs: smaller transfers, and no conversion on the device.
        decoder_context: for a decoder with key-value caches: write a folder with its parts in static shapes, for a
            prompt and caches of this number of tokens. The parts are compared with the whole decoder first.
        compile: compile the ``tpu-mlir`` program, run it in the simulator on the stored inputs, and compare the
            results. ``TPU_MLIR_HOME`` names the compiler; by default it is installed first, as by ``device_setup``.
        time_limit: for ``compile``: seconds for each pass of the compiler, and for the simulator.
        layer_groups: for ``compile``: level of layer grouping, 0 to 3. By default several are tried until the program
            compiles and its integers are equal.
        plugins: Python files with custom operators.
        progress: receives the steps of the compilation.

    Returns:
        The path and the manifest. With ``compile``, ``check`` raises an error if the program differs.

    Raises:
        UnsupportedError: some nodes have no exact equivalent in the target. Nothing is written.
        UsageError: an argument is invalid, the file or folder cannot be written, or the parts of a decoder give other
            logits than the whole.
        MissingExtraError: the compiler is not installed and cannot be.
        ResourceLimitError: the simulator needs more than the time limit, or the disk is full.

    Example:
        >>> model = tc.convert("digits.onnx")
        >>> print(tc.export(model, "exported.onnx", to="onnx"))
        digits with the arithmetic of bm1686, ONNX operator set 21
          output  probability  float32[1, 10]
        wrote exported.onnx
        next: open exported.onnx in ONNX Runtime

    """
    load_plugins(plugins)
    form = FORMS.get(to)
    if form is None:
        raise UsageError(f"unknown form '{to}'", hint=f"known are {', '.join(FORMS)}")
    if to != "onnx" and os.fspath(path).lower().endswith(".onnx"):
        hint = "add --to onnx for an ONNX file, or name a folder"
        raise UsageError(f"the form {to} is a folder, not an .onnx file", file=os.fspath(path), hint=hint)
    if to == "onnx" and os.fspath(path).lower().endswith((".tpum", ".tflite")):
        hint = f"name it {os.path.splitext(os.fspath(path))[0]}.onnx"
        raise UsageError("what is written is an ONNX file", file=os.fspath(path), hint=hint)
    model_sha256 = None
    log = Path(f"{os.fspath(path)}.compile.log")
    read = [os.path.abspath(item) for item in (model, data) if isinstance(item, (str, os.PathLike))]
    refuse_inputs_below(path, read)
    if compile:
        refuse_input(log, read)
        if log.is_dir():
            text = "a folder where the output of a compiler that fails is written"
            raise UsageError(text, file=str(log), hint="rename it, or export to another path")
    if not isinstance(model, Model):
        model_sha256 = file_sha256(Path(model)) if compile else None
        model = load(model)
    _refuse_source(model, Path(path))
    if floats not in FLOATS:
        raise UsageError(f"unknown type of floats '{floats}'", hint=f"known are {', '.join(FLOATS)}")
    if floats != FLOATS[0] and to != "tpu-mlir":
        raise UsageError(f"floats is {floats}, which only the form tpu-mlir has", hint="leave it out, or to=tpu-mlir")
    proofs: dict[str, Proof] = {}
    write_program = form.write
    if compile:
        write_program = _compiling(to, form, Compilation(log, time_limit, layer_groups, progress), proofs)
    elif layer_groups is not None:
        raise UsageError(
            "--layer-groups without --compile", hint="add --compile, or set LAYER_GROUP_OPT for compile.sh"
        )
    if integer_io and (to != "tpu-mlir" or decoder_context is not None):
        raise UsageError("integer_io, which only the form tpu-mlir without decoder_context has", hint="leave it out")
    borders = (INTEGERS, INTEGERS) if integer_io else ("f32", "f32")
    request = Request(model, Path(path), chip, data, with_checks, floats, borders=borders, model_sha256=model_sha256)
    if decoder_context is not None:
        return Export(Path(path), export_decoder(request, decoder_context, to, write_program), proofs, to)
    buckets = buckets_of(model.metadata)
    if not buckets:
        return Export(Path(path), write_program(request), proofs, to)
    if data is not None:
        hint = "convert with --input-shapes for one of the shapes, and export that model"
        raise UsageError("data with a model of several shapes, which need different data", hint=hint)
    programs: list[dict[str, Any]] = []

    def write(folder: Path) -> None:
        for bucket in buckets:
            name = re.sub("[=;]", "_", format_bucket(bucket)) + (".onnx" if to == "onnx" else "")
            manifest = write_program(
                replace(request, model=_with_numbers(model, bucket), path=folder / name, samples=None)
            )
            programs.append({"path": name, "manifest": manifest})
        (folder / MANIFEST).write_text(json.dumps({"programs": programs}, indent=1) + "\n", encoding="utf-8")

    write_folder(path, write)
    first = programs[0]
    return Export(Path(path), {**first["manifest"], "programs": [item["path"] for item in programs]}, proofs, to)


def _compiling(
    to: str, form: Form, compilation: Compilation, proofs: dict[str, Proof]
) -> Callable[[Request], dict[str, Any]]:
    """Return the function that writes a program, compiles it, and adds its proof.

    Raises:
        UsageError: the form has no compiler.
    """
    compile_program = form.compile
    if compile_program is None:
        raise UsageError(f"--compile with the form {to}", hint="only programs of the form tpu-mlir are compiled")

    def write(request: Request) -> dict[str, Any]:
        manifest, proofs[request.path.name] = compile_program(request, compilation)
        return manifest

    return write


def _refuse_source(model: Model, path: Path) -> None:
    """Refuse to replace the file that the model was converted from, which its recipe knows by its digest.

    Raises:
        UsageError: the file has the content of the source.
    """
    recipe = model.metadata.get("recipe") or {}
    entries = (recipe.get(name) or {} for name in ("source", "weights"))
    digests = {entry[ALGORITHM] for entry in entries if ALGORITHM in entry}
    if digests and os.path.isfile(path) and file_digest(path) in digests:
        text = "the model was converted from this file, which would be replaced by the result"
        raise UsageError(text, file=os.fspath(path), hint="name another file to write")


def _with_numbers(model: Model, bucket: Bucket) -> Model:
    """Return the model for the shapes of a bucket."""
    graph = graph_of_bucket(model.graph, bucket)
    metadata = {key: value for key, value in model.metadata.items() if key != KEY}
    return Model(replace(model.content, graph=graph, metadata=metadata))
