"""Export of a decoder as parts with static shapes, with a manifest of their order, inputs, outputs and caches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from tpuconvert.exporters.decoder_check import PartsCheck, check_parts
from tpuconvert.exporters.decoder_interface import DETAIL, MASKED
from tpuconvert.exporters.decoder_parts import Part, Parts, part_model, split_decoder
from tpuconvert.exporters.folder import MANIFEST, write_folder
from tpuconvert.exporters.manifest import DecoderPart, ProgramTensor, describe_tensor
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.exporters.request import Request
from tpuconvert.exporters.tpu_mlir.package import write_decoder_programs
from tpuconvert.schema.definition.op import Trait
from tpuconvert.schema.errors import NO_EXACT_FORM, ProblemList, UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.ops.matmul_group_quantized import MatmulGroupQuantized
from tpuconvert.schema.types import Array, Chip

TO_ONNX, TO_COMPILER = "onnx", "tpu-mlir"
"""The export targets that have floating-point operators."""

HINT = "export the decoder with --to onnx, or without --decoder-context"

Write = Callable[[Request], dict[str, Any]]
"""Function of an export target that writes a model and returns its manifest."""


def export_decoder(request: Request, context: int, to: str, write: Write) -> dict[str, Any]:
    """Write the parts of a decoder into a folder, after a comparison with the whole decoder.

    Args:
        request: the decoder and the folder.
        context: number of tokens of a prompt and of the caches.
        to: name of the export target.
        write: function of the target, which writes one part.

    Returns:
        The manifest of the folder.

    Raises:
        UnsupportedError: a node has no form in a part or in the target; names all of them. Nothing is written.
        UsageError: the model is not a decoder with caches, an argument is invalid, or the parts give other logits.
    """
    if context < 2:
        raise UsageError(f"a decoder context of {context} was given, expected at least 2 tokens")
    if request.samples is not None:
        hint = "leave out --data; the parts are compared with the whole decoder on random tokens"
        raise UsageError("samples were given for a decoder, whose parts have other inputs", hint=hint)
    if to == TO_COMPILER and request.model.chip is Chip.BM1684:
        text = "the model is for BM1684, which has neither packed weights nor the lookup of an embedding"
        raise UsageError(text, file=request.model.graph.file, hint="convert it with --chip bm1684x")
    parts = split_decoder(request.model, context)
    if to not in (TO_ONNX, TO_COMPILER):
        _refuse_floats(request, to)
    manifest: dict[str, Any] = {}
    samples: dict[str, dict[str, Array]] = {}

    def keep_sample(part: Part, feeds: Mapping[str, Array]) -> None:
        if to == TO_COMPILER:
            samples[part.name] = {name: np.array(array) for name, array in feeds.items()}

    def write_parts(folder: Path) -> None:
        suffix = ".onnx" if to == TO_ONNX else ""
        files = {part.name: f"{part.name}{suffix}" for part in parts.all}
        check = check_parts(request.model, parts, keep_sample)
        paths = {name: folder / file for name, file in files.items()}
        written = _write_all(request, parts, paths, samples, write)
        manifest.update(_describe(request, parts, files, written, check))
        if to == TO_COMPILER:
            write_decoder_programs(folder, manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")

    write_folder(request.path, write_parts)
    return manifest


def _refuse_floats(request: Request, to: str) -> None:
    """Report the linear operators that compute in float, for a target with integer operators only.

    Raises:
        UnsupportedError: there are some.
    """
    graph = request.model.graph
    problems = ProblemList(graph.file or graph.name, DETAIL)
    for node in graph.nodes:
        if isinstance(node.op, MatmulGroupQuantized):
            problems.add(NO_EXACT_FORM, node.op.name, node.name, f"{to} has no weights of {node.op.bits} bits", HINT)
        elif Trait.LINEAR in node.op.traits and node.output.dtype.is_float:
            problems.add(NO_EXACT_FORM, node.op.name, node.name, f"{to} has no form of it in float", HINT)
    problems.raise_if_any()


def _write_all(
    request: Request, parts: Parts, paths: Mapping[str, Path], samples: Mapping[str, Mapping[str, Array]], write: Write
) -> dict[str, dict[str, Any]]:
    """Write all parts and return their manifests. Problems of all parts are reported together.

    Args:
        request: the decoder.
        parts: its parts.
        paths: file or folder of each part.
        samples: inputs of the last run of each part, or nothing for a target without samples.
        write: function of the target.

    Raises:
        UnsupportedError: nodes have no form.
    """
    graph = request.model.graph
    problems = ProblemList(graph.file or graph.name, DETAIL)
    manifests = {}
    for part in parts.all:
        own = replace(
            request,
            model=part_model(request.model, part),
            path=paths[part.name],
            samples=[samples[part.name]] if samples else None,
            program=part.name,
            borders=(request.floats, "f32" if part is parts.head else request.floats),
        )
        try:
            manifest = write(own)
        except UnsupportedError as error:
            for problem in error.problems:
                problems.add(problem.kind, problem.op, problem.node, problem.message, HINT, problem.needs)
            continue
        for node in manifest.get("host_nodes", ()):
            if node["reason"]:
                text = f"{node['reason']}; a part of a decoder has no part for the host"
                problems.add(NO_EXACT_FORM, node["operator"], node["name"], text, HINT)
        manifests[part.name] = manifest
    problems.raise_if_any()
    return manifests


def _describe(
    request: Request,
    parts: Parts,
    files: Mapping[str, str],
    written: Mapping[str, dict[str, Any]],
    check: PartsCheck,
) -> dict[str, Any]:
    """Return the manifest of the folder."""
    graph = request.model.graph
    first = next(iter(written.values()))
    states = request.model.states
    inputs = [port for k, port in enumerate(graph.input_ports) if k not in {state.input for state in states}]
    outputs = [port for k, port in enumerate(graph.output_ports) if k not in {state.output for state in states}]
    return {
        **{key: first[key] for key in ("format", "to", "chip", "opset", "compiler", "floats") if key in first},
        "name": request.name,
        "program_digest": program_digest(graph),
        "inputs": [describe_tensor(port.name, port.dtype, port.shape) for port in inputs],
        "outputs": [describe_tensor(port.name, port.dtype, port.shape) for port in outputs],
        "programs": list(files.values()),
        "decoder": {
            "context": parts.context,
            "prefill": [part.name for part in parts.prefill],
            "decode": [part.name for part in parts.decode],
            "head": parts.head.name,
            "mask": {"visible": 0.0, "hidden": MASKED},
            "cache_axis": parts.axis,
            "check": check.to_dict(),
            "parts": [_describe_part(part, files[part.name], written[part.name]) for part in parts.all],
        },
    }


def _describe_part(part: Part, file: str, written: Mapping[str, Any]) -> DecoderPart:
    names = {port.name for port in part.graph.input_ports}
    ports = ("inputs", part.graph.input_ports), ("outputs", part.graph.output_ports)
    tensors = {key: [_describe_port(port, written[key]) for port in items] for key, items in ports}
    return {
        "name": part.name,
        "file": file,
        "inputs": tensors["inputs"],
        "outputs": tensors["outputs"],
        "caches": [
            {"source": source, "input": name if name in names else None, "output": result}
            for source, name, result in part.caches
        ],
        "program_digest": written["program_digest"],
    }


def _describe_port(port: Port, tensors: Sequence[ProgramTensor]) -> ProgramTensor:
    """Return the description of an input or output, with its name and type in a compiled program."""
    described = cast(ProgramTensor, describe_tensor(port.name, port.dtype, port.shape))
    for tensor in tensors:
        if tensor["name"] == port.name and "device_name" in tensor:
            described["device_name"], described["device_dtype"] = tensor["device_name"], tensor["device_dtype"]
    return described


def describe_check(decoder: Mapping[str, Any]) -> str:
    """Return a line about the comparison with the whole decoder, from the manifest of the parts."""
    check = decoder["check"]
    return (
        f"  checked on {check['prompt']} tokens at once and {check['tokens']} one by one: "
        f"largest difference {check['difference']:.1e} of the range of the logits"
    )
