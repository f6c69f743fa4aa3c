"""Contents of ``export.json``, the manifest of an export."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, NotRequired, TypedDict

from tpuconvert.exporters.decoder_check import PartsCheck
from tpuconvert.schema.types import QuantParams


class TensorOfProgram(TypedDict):
    """An input or output."""

    name: str
    dtype: str
    shape: list[int | str]
    scale: list[float] | None
    zero_point: list[int] | None


class Quantization(TypedDict):
    """Conversion at the border of a program: round(x * factor) + offset for an input, (x - offset) * factor."""

    factor: float
    offset: int


class ProgramTensor(TensorOfProgram):
    """An input or output of a compiled program, which may have a name of its own there."""

    device_name: NotRequired[str]
    device_dtype: Annotated[NotRequired[str], "type in the program; bfloat16: bit patterns in uint16"]
    quantize: Annotated[NotRequired[Quantization | None], "of an input of which the program takes the integers"]
    is_exact: Annotated[NotRequired[bool], "False: floats, and integers that follow from them"]
    rounding: Annotated[
        NotRequired[float], "of an output: mean change by the last places of quantized floats; 0 for inputs"
    ]


class HostNode(TypedDict):
    """A node that remains for the host."""

    operator: str
    name: str
    reason: Annotated[NotRequired[str], "why the device cannot compute it; empty if it depends on such a node"]


class HostInput(TypedDict):
    """An input of the part for the host."""

    name: str
    port: Annotated[str, "input of the model, or empty for a result of the program"]
    shape: list[int | str]


class ResultOfModel(TypedDict):
    """An output of the model."""

    name: str
    dtype: str
    shape: list[int | str]
    source: Annotated[str, "output of the program, or empty if the host computes it"]
    dequantize: Annotated[Quantization | None, "of an output of which the program returns the integers"]
    is_exact: bool
    rounding: Annotated[NotRequired[float], "mean change by the last places of quantized floats"]


class CacheOfPart(TypedDict):
    """A cache of a part of a decoder."""

    source: str
    input: str | None
    output: str


class DecoderPart(TypedDict):
    """A program of a decoder."""

    name: str
    file: str
    inputs: list[ProgramTensor]
    outputs: list[ProgramTensor]
    caches: list[CacheOfPart]
    program_digest: str


class DecoderManifest(TypedDict):
    """Parts of a decoder."""

    context: int
    prefill: list[str]
    decode: list[str]
    head: str
    mask: Annotated[dict[str, float], "values of visible and of hidden positions"]
    cache_axis: int
    check: Annotated[dict[str, Any], PartsCheck]
    parts: list[DecoderPart]


class Manifest(TypedDict):
    """Contents of export.json."""

    format: int
    to: str
    name: str
    chip: str
    compiler: NotRequired[str]
    opset: NotRequired[int]
    program_digest: str
    floats: NotRequired[Annotated[str, "type of floating-point operators"]]
    tolerance: NotRequired[Annotated[float, "accepted difference of floats, as a share of the largest magnitude"]]
    samples: NotRequired[int]
    inputs: list[ProgramTensor]
    outputs: list[ProgramTensor]
    results: NotRequired[list[ResultOfModel]]
    host_inputs: NotRequired[list[HostInput]]
    host_nodes: NotRequired[list[HostNode]]
    host_share: Annotated[NotRequired[float], "share of the multiply-accumulates that the host computes"]
    programs: Annotated[NotRequired[list[str]], "files or folders of a model with several programs"]
    decoder: Annotated[NotRequired[DecoderManifest], "parts of a decoder with --decoder-context"]


def describe_tensor(
    name: str, dtype: str, shape: Iterable[int | str], quant: QuantParams | None = None
) -> TensorOfProgram:
    """Return the description of a tensor. Floats have no scale."""
    scale, zero_point = (None, None) if quant is None else (list(quant.scale), list(quant.zero_point))
    return {"name": name, "dtype": dtype, "shape": list(shape), "scale": scale, "zero_point": zero_point}
