"""Export folder for the vendor's compiler: program, weights, scripts, samples and expected results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tpuconvert.exporters.folder import MANIFEST, write_folder
from tpuconvert.exporters.manifest import Manifest, ProgramTensor, Quantization, describe_tensor
from tpuconvert.exporters.program_digest import program_digest
from tpuconvert.exporters.request import Request
from tpuconvert.exporters.tpu_mlir.chips import TARGETS, Target
from tpuconvert.exporters.tpu_mlir.dialect import COMPILER_VERSION, Tensor, integer_type
from tpuconvert.exporters.tpu_mlir.host_part import HostPart, find_host_part
from tpuconvert.exporters.tpu_mlir.lowering import Lowering
from tpuconvert.exporters.tpu_mlir.passes import shell_passes
from tpuconvert.exporters.tpu_mlir.registry import lowers, lowers_bm1684, lowers_floats
from tpuconvert.exporters.tpu_mlir.rounding_sensitivity import (
    changes_by_rounding,
    observe_values,
    rounding_sensitivity,
    rounds_floats,
)
from tpuconvert.exporters.tpu_mlir.run_bmodel import device_array, stack_samples
from tpuconvert.model.model import Model
from tpuconvert.optimizer import expand_composites, is_expandable
from tpuconvert.optimizer.constant_folding import fold_constants
from tpuconvert.samples.array_writer import write_npz
from tpuconvert.schema.definition.chip_names import plain_name
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.file.file_model import FileModel
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.ops.quantization.dequant_int_to_fp32 import DequantIntToFp32
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32ToInt
from tpuconvert.schema.types import Array, Chip
from tpuconvert.text.markdown_text import code_span, table_code_span

Feed = Mapping[str, Array]

SCRIPTS = Path(__file__).parent
"""Folder with ``compile.sh``, ``run_bmodel.py`` and ``run.py``, which are copied into every export."""

HOST_MODEL = "host.tpum"
"""Model file of the nodes that the host computes after the program."""

FORMAT = 1
"""Version of the manifest ``export.json``."""


TOLERANCES = {"f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
"""Largest accepted difference of floating-point results, as a share of the largest magnitude.

The largest differences of whole networks in the simulator were 4e-6 with f32, 4.1e-3 with f16 (YuNet) and 1.3e-2 with
bf16 (YOLOv8).
"""

AMPLIFICATION = 8
"""Accepted difference of a network that computes in f32, in changes of its outputs by the last place of its inputs.

Networks amplify roundings: three of 20 trained ones differ by more than 1e-5 in the simulator, by up to 1e-4, which is
at most 4 of these changes.
"""

INEXACT_TOLERANCE = 5e-2
"""The same where integers follow from floating-point results: a rounding error can move an integer by one step."""

COMPILE_SCRIPT = "compile.sh"
GENERATE_SCRIPT = "generate.py"
"""Names of the scripts in an export, and beside this module."""


@dataclass(frozen=True)
class ProgramForm:
    """A form in which a lowered graph is written for the compiler.

    Args:
        to: name of the export target.
        program: file with the program, with ``{name}``.
        compile: file that compiles the program, with ``{name}``.
        command: command that runs this file, with ``{name}``.
        packages: requirements of the command, as arguments of ``pip install``.
        write: writes the program, which returns the given tensors, the weights and the file that compiles them.
    """

    to: str
    program: str
    compile: str
    command: str
    packages: str
    write: Callable[[Path, Lowering, Sequence[Tensor]], None]


DEVICE_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "si32": "int32"}
"""Element type of a tensor without a scale -> type of the arrays that the vendor's runtime takes and returns."""

CHIPS = tuple(dict.fromkeys(target.chip for target in TARGETS.values()))
"""Chips whose models can be exported."""


def lower_for_chip(model: Model) -> Lowering:
    """Lower a model for the first target with its chip, which must be one of ``CHIPS``.

    Raises:
        UnsupportedError: some nodes have no exact equivalent.
    """
    target = next(target for target in TARGETS.values() if target.chip is model.chip)
    return lower_graph(model.graph, target, "check", is_strict=True)


def export_tpu_mlir(request: Request) -> dict[str, Any]:
    """Write an export folder with a module of the ``tpu`` dialect and return its manifest.

    Nodes without a form, and all nodes that depend on them, become a part for the host.

    Raises:
        UnsupportedError: the program would compute nothing, for these reasons. Nothing is written.
        UsageError: the chip is unknown or is not the chip of the model, or the folder cannot be written.
    """
    return export_lowering(request, lower_request(request), TPU_MLIR)


def lower_request(request: Request, on_host: Mapping[str, str] = MappingProxyType({})) -> Lowering:
    """Lower the model of an export with a module of the ``tpu`` dialect.

    Args:
        request: the export.
        on_host: names of nodes that the host is to compute, with the reason.

    Raises:
        UnsupportedError: the extents of an input are open.
        UsageError: the chip is unknown, is not the chip of the model, or does not compute in the type of the request.
    """
    target = requested_target(request, TARGETS)
    if request.floats not in target.floats:
        hint = f"known are {', '.join(target.floats)}"
        raise UsageError(f"{target.name} does not compute floating-point operators in {request.floats}", hint=hint)
    graph, name = request.model.graph, program_name(request)
    return lower_with_host(graph, target, name, request.floats, on_host, borders=request.borders)


def requested_target(request: Request, targets: Mapping[str, Target]) -> Target:
    """Return the target chip of an export. By default, it is the first one that executes the model.

    Raises:
        UsageError: the chip is not one of the targets, or is not the chip of the model.
    """
    model, chip = request.model, request.chip
    if chip is None:
        target = next((each for each in targets.values() if each.chip is model.chip), None)
        text = f"the model is for {model.chip.value}, and the programs are for {', '.join(targets)}"
        hint = f"convert it with --chip {next(iter(targets))}"
    else:
        target = targets.get(plain_name(chip))
        text, hint = f"no export for chip '{chip}'", f"known are {', '.join(targets)}"
    if target is None:
        raise UsageError(text, file=model.graph.file if chip is None else "", hint=hint)
    if model.chip is not target.chip:
        raise UsageError(
            f"the model is for {model.chip.value}, an export for {target.name} needs one for {target.chip.value}",
            file=model.graph.file,
            hint=_conversion_for(target, model),
        )
    return target


def _conversion_for(target: Target, model: Model) -> str:
    """Return how a model for another chip has to be converted."""
    chip = target.chip.value.lower()
    is_exact_only_so = target.chip is Chip.BM1684 and model.quantize != "none"
    return f"convert the source with --chip {chip}" + f" --exact-on {target.name}" * is_exact_only_so


def program_name(request: Request) -> str:
    """Return the name of the model as an identifier."""
    name = request.name
    return f"m_{name}" if name[0].isdigit() else name


def export_lowering(request: Request, lowering: Lowering, form: ProgramForm) -> dict[str, Any]:
    """Write the export folder of a lowering. Return the manifest.

    Raises:
        UnsupportedError: the program would compute nothing, because nodes have no form.
        UsageError: the program would compute nothing, or the folder cannot be written.
    """
    host = partial_host_part(lowering)
    feeds = request.feeds()
    manifest: dict[str, Any] = {}
    write: Callable[[Path], None] = lambda staging: manifest.update(  # noqa: E731
        write_package(staging, request.model, lowering, host, feeds, form, with_checks=request.with_checks)
    )
    write_folder(request.path, write)
    return manifest


def partial_host_part(lowering: Lowering) -> HostPart:
    """Return what a lowering leaves to the host, which is not everything.

    Raises:
        UnsupportedError: the program would compute nothing, because nodes have no form.
        UsageError: the program would compute nothing.
    """
    host = find_host_part(lowering)
    if host.is_everything:
        lowering.problems.raise_if_any()
        raise UsageError(
            "the model has no integers to export, and the host would compute all of it",
            file=lowering.graph.file,
            hint="convert it with --quantize int8",
        )
    return host


def lower_graph(graph: Graph, target: Target, name: str, floats: str = "f32", *, is_strict: bool = False) -> Lowering:
    """Lower a graph to the dialect. The arguments are the same as for ``try_lowering``.

    Raises:
        UnsupportedError: some nodes have no exact equivalent; the message lists all of them.
    """
    lowering = try_lowering(graph, target, name, floats, is_strict=is_strict)
    lowering.problems.raise_if_any()
    return lowering


def try_lowering(
    graph: Graph,
    target: Target,
    name: str,
    floats: str = "f32",
    *,
    is_strict: bool = False,
    has_floats: bool = True,
    on_host: Mapping[str, str] = MappingProxyType({}),
    borders: tuple[str, str] = ("f32", "f32"),
) -> Lowering:
    """Lower a graph to the dialect. Nodes without an exact form are in ``refused`` of the result.

    Args:
        graph: the graph.
        target: the chip.
        name: symbol name of the module.
        floats: type in which floating-point operators compute.
        is_strict: refuse integers that follow from floating-point results, which the device may round differently.
        has_floats: False to leave floating-point operators to the host, except the last softmax and activations.
        on_host: names of nodes that the host is to compute, with the reason.
        borders: types of the floating-point inputs and of the floating-point results of the program.
    """
    import_modules("tpuconvert.exporters.tpu_mlir.forms")
    lowering = Lowering(graph, target, name, floats, is_strict=is_strict, on_host=on_host, borders=borders)
    forms = lowers_bm1684 if target.chip is Chip.BM1684 else lowers
    lowering.run(forms, lowers_floats if has_floats else None)
    return lowering


def lower_with_host(
    graph: Graph,
    target: Target,
    name: str,
    floats: str = "f32",
    on_host: Mapping[str, str] = MappingProxyType({}),
    borders: tuple[str, str] = ("f32", "f32"),
) -> Lowering:
    """Lower a graph to the dialect; the host computes nodes without a form, and all nodes that depend on them.

    Composite operators without a form of their own are expanded. The arguments are the same as for ``try_lowering``.

    Raises:
        UnsupportedError: the extents of an input are open.
    """
    while True:
        lowering = try_lowering(graph, target, name, floats, on_host=on_host, borders=borders)
        if not all(value.type.is_static for value in graph.inputs):
            lowering.problems.raise_if_any()
        refused = {node.name for node in lowering.refused if node.name not in on_host and is_expandable(node)}
        if not refused:
            return lowering
        graph = _expanded(graph, refused)


def _expanded(graph: Graph, names: Collection[str]) -> Graph:
    """Return a copy of a graph in which the composite nodes of these names are expanded."""
    copy = copy_graph(graph)
    expand_composites(copy, lambda node: node.name in names and is_expandable(node))
    fold_constants(copy)
    return copy


def write_module(folder: Path, lowering: Lowering, tensors: Sequence[Tensor]) -> None:
    """Write the module that returns the given tensors, its weights, and the script that compiles it."""
    module, name = lowering.module, lowering.module.name
    (folder / f"{name}.mlir").write_text(module.text(tensors), encoding="utf-8")
    write_npz(folder / f"{name}_weights.npz", module.weights(tensors))
    text = (SCRIPTS / COMPILE_SCRIPT).read_text(encoding="utf-8")
    replacements = {
        "@NAME@": name,
        "@CHIP@": lowering.target.name,
        "@LEVEL@": str(lowering.target.level),
        "@COMPILER@": COMPILER_VERSION,
        "@PASSES@": shell_passes(),
    }
    for key, replacement in replacements.items():
        text = text.replace(key, replacement)
    (folder / COMPILE_SCRIPT).write_text(text, encoding="utf-8")
    (folder / COMPILE_SCRIPT).chmod(0o755)


TPU_MLIR = ProgramForm(
    to="tpu-mlir",
    program="{name}.mlir",
    compile=COMPILE_SCRIPT,
    command=f"./{COMPILE_SCRIPT}",
    packages=f"tpu_mlir=={COMPILER_VERSION}",
    write=write_module,
)
"""A module of the ``tpu`` dialect."""


def write_package(
    folder: Path,
    model: Model,
    lowering: Lowering,
    host: HostPart,
    samples: Sequence[Feed],
    form: ProgramForm,
    *,
    with_checks: bool,
) -> Manifest:
    """Write all files of an export.

    Args:
        folder: an empty folder.
        model: the model.
        lowering: its lowered graph.
        host: what the lowering leaves to the host.
        samples: inputs of the model; their results are computed here and stored.
        form: the form of the program.
        with_checks: return every integer tensor from the program, instead of the outputs alone.

    Returns:
        The manifest.
    """
    module, name, graph = lowering.module, lowering.module.name, lowering.graph
    borders = {value: lowering.at_border(value) for value in graph.outputs if lowering.is_returnable(value)}
    values = list(borders.values())
    values = list(dict.fromkeys([*values, *host.computed, *(lowering.integer_values() if with_checks else [])]))
    tensors = [lowering.returned(value) for value in values]
    form.write(folder, lowering, tensors)
    observed, outputs = observe_values(graph, {value.name for value in (*values, *borders)}, samples)
    changes = {}
    if has_inexact_integers(lowering) or any(rounds_floats(node) for node in graph.nodes):
        changes = changes_by_rounding(graph, observed, samples, lowering.kind)
    results = stack_samples(
        {name: [np.array(feed[name]) for feed in outputs] for name in outputs[0]} if outputs else {}
    )
    write_npz(folder / "expected.npz", {value.name: observed[value.name] for value in values})
    write_npz(folder / "results.npz", results)
    ports = {value: port.name for value, port in zip(graph.inputs, graph.input_ports, strict=True)}
    inputs = {value: tensor for value, tensor in lowering.inputs.items() if tensor in module.used_inputs(tensors)}
    write_npz(folder / "inputs.npz", _stored_inputs(lowering, inputs, host, ports, samples))
    if host.outputs:
        _host_model(model, host).save(folder / HOST_MODEL)
    is_exact = {value: tensor.is_exact for value, tensor in zip(values, tensors, strict=True)}
    is_host_exact = all(is_exact[value] for value in host.computed)
    manifest: Manifest = {
        "format": FORMAT,
        "to": form.to,
        "name": name,
        "chip": lowering.target.name,
        "compiler": f"tpu_mlir {COMPILER_VERSION}",
        "program_digest": program_digest(model.graph),
        "floats": lowering.kind,
        "tolerance": _tolerance(lowering, samples),
        "samples": len(samples),
        "inputs": [
            _describe(value, ports[value], tensor, _quantization(lowering.quantizers.get(value)))
            for value, tensor in inputs.items()
        ],
        "outputs": [
            _describe(value, value.name, tensor, rounding=changes.get(value.name, 0.0))
            for value, tensor in zip(values, tensors, strict=True)
        ],
        "results": [
            {
                "name": port.name,
                "dtype": value.dtype.numpy.name if port.dtype == "bfloat16" else port.dtype,  # NumPy lacks bfloat16
                "shape": list(port.shape),
                "source": borders[value].name if value in borders else "",
                "dequantize": _quantization(value.producer) if borders.get(value, value) is not value else None,
                "is_exact": is_exact.get(value, is_host_exact) and value.dtype.is_integer,
                "rounding": changes.get(value.name, 0.0),
            }
            for value, port in zip(graph.outputs, graph.output_ports, strict=True)
        ],
        "host_inputs": [
            {"name": value.name, "port": ports.get(value, ""), "shape": [*value.shape]}
            for value in (*host.inputs, *host.computed)
        ],
        "host_nodes": [
            {"operator": node.op.name, "name": node.name, "reason": host.reasons.get(node, "")} for node in host.nodes
        ],
        "host_share": round(host.share, 4),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    compiler = form.compile.format(name=name)
    for script in ("run_bmodel.py", "run.py"):
        text = (SCRIPTS / script).read_text(encoding="utf-8")
        (folder / script).write_text(text.replace("@COMPILE@", compiler), encoding="utf-8")
    (folder / "README.md").write_text(readme(manifest, form), encoding="utf-8")
    checked = (form.program.format(name=name), f"{name}_weights.npz", "inputs.npz", "expected.npz", MANIFEST)
    lines = [f"{hashlib.sha256((folder / file).read_bytes()).hexdigest()}  {file}\n" for file in checked]
    (folder / "checksums.txt").write_text("".join(lines), encoding="utf-8")
    return manifest


def write_decoder_programs(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the programs that compile the parts of a decoder, and that generate tokens with them."""
    parts = [part["name"] for part in manifest["decoder"]["parts"]]
    replacements = {
        "@PARTS@": " ".join(parts),
        "@PROGRAMS@": " ".join(f"{part}/{part}.bmodel" for part in parts),
        "@NAME@": manifest["name"],
        "@CHIP@": manifest["chip"],
    }
    text = (SCRIPTS / "compile_parts.sh").read_text(encoding="utf-8")
    for key, replacement in replacements.items():
        text = text.replace(key, replacement)
    (folder / COMPILE_SCRIPT).write_text(text, encoding="utf-8")
    (folder / COMPILE_SCRIPT).chmod(0o755)
    (folder / GENERATE_SCRIPT).write_text((SCRIPTS / GENERATE_SCRIPT).read_text(encoding="utf-8"), encoding="utf-8")


def _tolerance(lowering: Lowering, samples: Sequence[Feed]) -> float:
    """Return the largest accepted difference of floats, as a share of the largest magnitude."""
    if has_inexact_integers(lowering):
        return INEXACT_TOLERANCE
    tolerance = TOLERANCES[lowering.kind]
    if lowering.kind != "f32" or lowering.integer_values() or not samples:
        return tolerance
    return max(tolerance, AMPLIFICATION * rounding_sensitivity(lowering.graph, samples[0]))


def _host_model(model: Model, host: HostPart) -> Model:
    """Return a model of the part for the host."""
    content = FileModel(
        host.to_graph(), model.chip, model.content.tool_version, model.content.quantize, plugins=model.content.plugins
    )
    return Model(content)


def has_inexact_integers(lowering: Lowering) -> bool:
    """Return True if integers of the program follow from floating-point results."""
    return any(not lowering.tensor(value).is_exact for value in lowering.integer_values())


def _quantization(node: Node | None) -> Quantization | None:
    """Return the parameters of a conversion between floats and integers, with one scale and one offset."""
    if node is None:
        return None
    assert isinstance(node.op, RequantFp32ToInt | DequantIntToFp32)
    return {"factor": float(np.float32(node.op.scale_val)), "offset": node.op.offset_val}


def _stored_inputs(
    lowering: Lowering,
    inputs: Mapping[Value, Tensor],
    host: HostPart,
    ports: Mapping[Value, str],
    samples: Sequence[Feed],
) -> dict[str, Array]:
    """Return the inputs of the program, integers with a scale dequantized to float32, and the inputs of the host."""
    arrays = {}
    for value, tensor in inputs.items():
        array = np.stack([np.asarray(feed[ports[value]]) for feed in samples])
        if value in lowering.quantizers:
            array = lowering.quantizers[value].op.reference(array.astype(np.float32))[0]
        elif value.quant is not None and value.dtype.is_integer and tensor.element in DEVICE_TYPES:
            array = (array.astype(np.float64) - value.quant.zero_point[0]) * value.quant.scale[0]
        arrays[tensor.location] = device_array(array, DEVICE_TYPES.get(tensor.element, array.dtype.name))
    for value in host.inputs:
        arrays.setdefault(ports[value], np.stack([np.asarray(feed[ports[value]]) for feed in samples]))
    return arrays


def _describe(
    value: Value, name: str, on_device: Tensor, quantize: Quantization | None = None, rounding: float = 0.0
) -> ProgramTensor:
    quant = value.quant if value.dtype.is_integer else None
    tensor = describe_tensor(name, value.dtype.numpy.name, value.shape, quant)
    dtype = DEVICE_TYPES.get(on_device.element) or integer_type(on_device.element) or tensor["dtype"]
    return {
        **tensor,
        "device_name": on_device.location,
        "device_dtype": dtype,
        "quantize": quantize,
        "is_exact": on_device.is_exact,
        "rounding": rounding,
    }


def _output_row(output: Mapping[str, Any]) -> str:
    """Return the row of an output in the table of README.md."""
    scale, zero_point = ("" if output[key] is None else output[key][0] for key in ("scale", "zero_point"))
    return f"| {table_code_span(output['name'])} | {output['dtype']} | {output['shape']} | {scale} | {zero_point} |"


NOT_COMPILED = "**Not compiled or run yet**: the steps below do that."
"""State of an export whose program the user compiles."""


_SETUP = "`tpuconvert device setup` installs the package (Linux x86-64, Python 3.10), and prints its folder."


def readme(manifest: Mapping[str, Any], form: ProgramForm, state: str = NOT_COMPILED, files: str = "") -> str:
    """Return the text of README.md.

    Args:
        manifest: contents of ``export.json``.
        form: the form of the program.
        state: what was done with the program.
        files: further rows of the table of files.
    """
    name, chip = manifest["name"], manifest["chip"]
    program, compiler, command = (text.format(name=name) for text in (form.program, form.compile, form.command))
    rows = "\n".join(map(_output_row, manifest["outputs"]))
    exactness = "Integers are equal in the simulator. Floating-point results may differ in the last bits."
    if not all(output["is_exact"] or output["dtype"].startswith("float") for output in manifest["outputs"]):
        exactness += " Integers that follow from them, `is_exact: false` in `export.json`, may be the next ones."
    host = "".join(
        f"- {node['operator']} {code_span(node['name'])}{': ' * bool(node['reason'])}{node['reason']}\n"
        for node in manifest["host_nodes"]
    )
    remaining = (
        "\n## Operators that the host computes\n\n"
        f"The program ends before these operators, {manifest['host_share']:.1%} of the multiply-accumulates. "
        f"`run.py` computes them from `{HOST_MODEL}` with tpuconvert:\n\n{host}"
        if host
        else ""
    )
    return f"""# {name} for {chip}

Exported by tpuconvert for {manifest["compiler"]}. {state}

```bash
export TPU_MLIR_HOME=...      # folder of the installed package tpu_mlir
{command:<29} # writes {name}.bmodel
python3 run.py                # the model on the stored samples: on a board, else in the vendor's simulator
python3 run.py INPUTS.npz OUTPUTS.npz  # on other samples, one array per input, samples along the first axis
PYTHON run_bmodel.py          # every returned tensor in the simulator against expected.npz; PYTHON has tpu_mlir
```

{_SETUP}
The package is `pip install {form.packages}`. With `--compile`, the export takes all these steps itself.

## On a board

Copy this folder. `run.py` needs NumPy and the Python package `sophon.sail` of the vendor's runtime. Another program can
call its functions, here for the compiled program without the part for the host:

```python
import run  # run.py of this folder

manifest = run.read_manifest()
inputs = run.read_arrays(run.FOLDER / "inputs.npz")
feeds = run.device_inputs(manifest, inputs)  # the arrays that the program takes
count = run.count_samples(manifest, inputs, feeds)
outputs = run.run_on_board(manifest, run.FOLDER / "{name}.bmodel", feeds, count)
for output, array in outputs.items():
    print(output, array.dtype, array.shape)
```

`bmrt_test --bmodel {name}.bmodel`, a command of the same runtime, measures the time of a run.

## Contents

| file | contents |
|---|---|
| `{program}`, `{name}_weights.npz` | the program, with the integers of the quantized model |
| `inputs.npz`, `expected.npz` | samples, and the tensors of the program as tpuconvert's runtime computes them |
| `results.npz` | the outputs of the model |
| `export.json` | names, types, scales, and the digest of the model |
| `checksums.txt` | SHA-256 of these files, checked by `{compiler}` |
{files}
{exactness}

| output | type | shape | scale | zero point |
|---|---|---|---|---|
{rows}
{remaining}"""
