"""Variants of an export: weights in 16 bits, and models of other quantizers. Needs the extra ``zoo``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import prepare_qat_fx

from tools.zoo.peer import quantize

Samples = Sequence[dict[str, Any]]
"""Samples that calibrate, by the name of the input; each has batch 1."""

MIN_ELEMENTS = 16
"""Smallest constant that is stored in 16 bits: smaller ones are shapes, axes and scalars."""

KINDS = {"float16": (TensorProto.FLOAT16, np.float16), "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def store_narrow(source: Path, target: Path, kind: str) -> None:
    """Store the weights of a model in 16 bits, with a Cast to FLOAT before the operators that use them.

    Args:
        source: the model.
        target: receives the variant.
        kind: key of KINDS.
    """
    element, dtype = KINDS[kind]
    model = onnx.load(str(source))
    casts = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.size < MIN_ELEMENTS:
            continue
        name, stored = tensor.name, f"{tensor.name}_{kind}"
        raw = array.astype(dtype).tobytes()
        tensor.CopyFrom(helper.make_tensor(stored, element, array.shape, raw, raw=True))
        casts.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(target))


def quantize_by_nncf(source: Path, target: Path, samples: Samples) -> None:
    """Quantize a model by NNCF, with its default settings."""
    import nncf  # a large package, which only this variant needs

    quantized = nncf.quantize(onnx.load(str(source)), nncf.Dataset(samples), subset_size=len(samples))
    onnx.save(quantized, str(target))


def quantize_by_torch(module: nn.Module, samples: Sequence[tuple[Tensor, ...]]) -> nn.Module:
    """Return a module with PyTorch's fake quantization nodes, whose ranges are computed from the samples.

    The module must be traceable by ``torch.fx``.
    """
    config = get_default_qat_qconfig_mapping("x86", version=0)  # without fused nodes, which no exporter supports
    quantized = prepare_qat_fx(module.train(), config, samples[0])
    quantized.eval()
    quantized.apply(torch.ao.quantization.disable_fake_quant)
    with torch.no_grad():
        for sample in samples:
            quantized(*sample)
    quantized.apply(torch.ao.quantization.enable_fake_quant)
    quantized.apply(torch.ao.quantization.disable_observer)
    return quantized


def half_module(module: nn.Module) -> nn.Module:
    """Return a module that takes and returns FLOAT and computes in FLOAT16."""
    return Half(module.half())


class Half(nn.Module):
    """A module in FLOAT16 with casts around it."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *arguments: Tensor) -> Any:
        """Return the results as FLOAT."""
        narrow = [x.half() if x.is_floating_point() else x for x in arguments]
        results = self.body(*narrow)
        return tuple(y.float() for y in results) if isinstance(results, tuple) else results.float()


FROM_FILES: dict[str, Callable[[Path, Path, Samples], None]] = {
    "float16": lambda source, target, _: store_narrow(source, target, "float16"),
    "bfloat16": lambda source, target, _: store_narrow(source, target, "bfloat16"),
    "onnxruntime": quantize,
    "nncf": quantize_by_nncf,
}
"""Variants that are made from an exported model."""
