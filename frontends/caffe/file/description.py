"""Read a prototxt: upgrade its layers to the current format and select those that Caffe runs for inference."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.frontends.caffe.file.text import Parsed, TextSyntaxError, UnknownField, parse_text
from tpuconvert.frontends.caffe.file.upgrade import v0_to_current, v1_to_current
from tpuconvert.frontends.sniffing import HEAD_BYTES, SourceFile, corrupt_input
from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.system.limits import Limits, current_limits, exceeded

_SOLVER_FIELDS = {"net", "train_net", "test_net", "base_lr", "lr_policy", "max_iter", "solver_mode", "snapshot_prefix"}
_TEST = 1
_TEXT_KINDS = ("prototxt", "text")


@dataclass
class LayerDescription:
    """One layer in the current format.

    Args:
        message: a LayerParameter.
        line: line in the file where the layer begins; 0 for a layer that was added for the old input fields.
        unknown: parameters that are not in the bundled Caffe schema; their paths are relative to the layer.
        dropped: V0 parameters without a meaning for this layer's type, as text.

    """

    message: Any
    line: int
    unknown: list[UnknownField] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


@dataclass
class NetDescription:
    """Layers of a network that run in the TEST phase.

    Args:
        name: name of the network.
        file: path that the caller passed.
        layers: layers in execution order. Old input fields are converted to a layer of type Input.
        left_out: names of the removed layers, which only run in training.
        borrowed: names of data layers of another phase or stage that are kept because other layers read their tops.
        unknown: unknown fields outside the layers.

    """

    name: str
    file: str
    layers: list[LayerDescription]
    left_out: list[str]
    unknown: list[UnknownField]
    borrowed: list[str] = field(default_factory=list)


def read_description(path: str | os.PathLike[str], limits: Limits | None = None) -> NetDescription:
    """Read a prototxt of any generation.

    Raises:
        CorruptInputError: the file is not a prototxt, or its text is malformed (with line and column).
        ResourceLimitError: the file is larger than the limits allow.
        UsageError: the file cannot be read.

    """
    limits = limits or current_limits()
    text = _read_text(SourceFile.of(path), limits)
    message = new_message("NetParameter")
    try:
        parsed = parse_text(text, message, max_depth=limits.max_depth)
    except TextSyntaxError as error:
        raise CorruptInputError(
            f"not a Caffe prototxt, or a damaged one: {error}", file=str(path), hint="correct that line, then retry"
        ) from error
    return _describe(message, parsed, str(path), limits)


def _read_text(path: SourceFile, limits: Limits) -> str:
    head, kind = path.head, path.kind
    if kind is not None and kind.id == "caffemodel":
        raise UsageError(
            f"{path}: is a Caffe weight file, not a network description",
            hint="give its prototxt as MODEL and this file as WEIGHTS",
        )
    if kind is not None and kind.id not in _TEXT_KINDS and not (kind.id == "json" and head.lstrip()[:1] == b"["):
        raise corrupt_input(path, "prototxt", kind=kind)
    if kind is None and _has_control_bytes(head):
        raise corrupt_input(path, "prototxt", "the file is not text", kind=None)
    path.check_size(limits, "max_text_bytes")
    # Invalid UTF-8 is replaced: names are ASCII in practice, but comments may have any encoding.
    return Path(path).read_bytes().decode("utf-8-sig", errors="replace")


def _has_control_bytes(head: bytes) -> bool:
    return any(byte < 0x20 and byte not in b"\t\n\v\f\r" for byte in head[:HEAD_BYTES])


def _describe(message: Any, parsed: Parsed, file: str, limits: Limits) -> NetDescription:
    outside = [item for item in parsed.unknown if len(item.path) == 1]
    if not message.layer and not message.layers:
        if _SOLVER_FIELDS & {item.path[0] for item in outside}:
            hint = "give the network that its 'net' field names"
            raise CorruptInputError("is a Caffe solver, not a network description", file=file, hint=hint)
        hint = "a network description has a 'layer { ... }' block per layer"
        raise CorruptInputError("not a Caffe prototxt: it describes no layer", file=file, hint=hint)
    if message.layer and message.layers:
        hint = "write all of them as 'layer'"
        raise CorruptInputError("mixes 'layer' with 'layers', the form before it", file=file, hint=hint)
    if len(message.layer) + len(message.layers) > limits.max_nodes:
        count = len(message.layer) + len(message.layers)
        raise exceeded(f"{count:,} layers", "max_nodes", limits, file=file)
    layers = [*_input_layer(message, file), *_upgrade_layers(message, parsed)]
    active = [layer for layer in layers if _runs(layer.message, message.state, file)]
    numbers = {id(layer) for layer in active}
    left_out = [layer for layer in layers if id(layer) not in numbers]
    borrowed = _borrow_data_layers(active, left_out)
    numbers |= {id(layer) for layer in borrowed}
    names = [layer.message.name for layer in left_out if id(layer) not in numbers]
    return NetDescription(
        message.name, file, [*borrowed, *active], names, outside, [layer.message.name for layer in borrowed]
    )


def _borrow_data_layers(active: list[LayerDescription], left_out: list[LayerDescription]) -> list[LayerDescription]:
    """Find removed data layers whose tops are read by a kept layer but produced by none.

    Networks for training only, or with test stages that a solver selects, declare their inputs in such layers.
    """
    written = {top for layer in active for top in layer.message.top}
    missing = {bottom for layer in active for bottom in layer.message.bottom} - written
    borrowed = []
    for layer in sorted(left_out, key=lambda layer: not any(rule.phase == _TEST for rule in layer.message.include)):
        tops = set(layer.message.top)
        if not layer.message.bottom and tops & missing and not tops & written:
            borrowed.append(layer)
            missing -= tops
            written |= tops
    return borrowed


def _upgrade_layers(message: Any, parsed: Parsed) -> Iterator[LayerDescription]:
    """Convert all layers to the current format, each with its line, unknown fields and dropped parameters."""
    generation = "layer" if message.layer else "layers"
    unknown: dict[int, list[UnknownField]] = {}
    for item in parsed.unknown:
        if len(item.path) > 2 and item.path[0] == generation:
            inside = UnknownField(item.path[2:], item.line, item.value)
            unknown.setdefault(int(item.path[1]), []).append(inside)
    if generation == "layers" and any(layer.HasField("layer") for layer in message.layers):
        converted = v0_to_current(message.layers)
    elif generation == "layers":
        converted = v1_to_current(message.layers)
    else:
        converted = [(index, layer, []) for index, layer in enumerate(message.layer)]
    for index, layer, dropped in converted:
        line = parsed.lines.get((generation, index), 0)
        yield LayerDescription(layer, line, unknown.get(index, []), dropped)


def _input_layer(message: Any, file: str) -> list[LayerDescription]:
    """Convert the old fields ``input``, ``input_shape`` and ``input_dim`` to a layer of type Input."""
    if not message.input:
        return []
    layer = new_message("LayerParameter")
    layer.name, layer.type = "input", "Input"
    layer.top.extend(message.input)
    shapes, dims = [list(shape.dim) for shape in message.input_shape], list(message.input_dim)
    if dims and not shapes:
        each = len(dims) if len(message.input) == 1 else 4
        if len(dims) != each * len(message.input):
            hint = "give four per input: batch, channels, height, width"
            raise CorruptInputError(f"{len(dims)} input_dim for {len(message.input)} inputs", file=file, hint=hint)
        shapes = [dims[start : start + each] for start in range(0, len(dims), each)]
    if shapes and len(shapes) not in (1, len(message.input)):
        raise CorruptInputError(
            f"{len(shapes)} input_shape for {len(message.input)} inputs", file=file, hint="give one per input"
        )
    for shape in shapes:
        layer.input_param.shape.add().dim.extend(shape)
    return [LayerDescription(layer, 0)]


def _runs(layer: Any, state: Any, file: str) -> bool:
    """Return True if the include and exclude rules of a layer select it for inference."""
    if layer.include and layer.exclude:
        hint = "keep one kind of rule per layer"
        raise CorruptInputError("has include and exclude rules at once", file=file, node=layer.name, hint=hint)
    if layer.include:
        return any(_meets(rule, state) for rule in layer.include)
    return not any(_meets(rule, state) for rule in layer.exclude)


def _meets(rule: Any, state: Any) -> bool:
    if rule.HasField("phase") and rule.phase != _TEST:  # the phase in the file's NetState is ignored
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)
