"""Write a Llama decoder that the TorchScript exporter exported as a GGUF file, with the weights of the export."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import numpy_helper

from tpuconvert.schema.types import Array

LINEAR = {
    "self_attn/q_proj": "attn_q",
    "self_attn/k_proj": "attn_k",
    "self_attn/v_proj": "attn_v",
    "self_attn/o_proj": "attn_output",
    "mlp/gate_proj": "ffn_gate",
    "mlp/up_proj": "ffn_up",
    "mlp/down_proj": "ffn_down",
}
"""Linear layers of a block: names in the nodes of the export, and in GGUF."""

NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
"""Norms of a block: names in the parameters of the export, and in GGUF."""

EPSILON, BASE = 1e-6, 10000.0
"""Of the norms and of the rotary embeddings: defaults of transformers for Llama."""

NORMAL_TOKEN, UNKNOWN_TOKEN, CONTROL_TOKEN = 1, 2, 3


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama decoder, in numbers of elements."""

    layers: int
    width: int
    hidden: int
    heads: int
    groups: int
    head: int
    vocabulary: int
    context: int


def shape_of(model: onnx.ModelProto, context: int) -> Shape:
    """Read the sizes of a decoder from its caches and weights."""
    caches = [port for port in model.graph.input if re.fullmatch(r"past_key_values\.\d+\.key", port.name)]
    _, groups, _, head = (axis.dim_value for axis in caches[0].type.tensor_type.shape.dim)
    weights = linear_weights(model)
    width, all_heads = weights["0.attn_q"].shape
    return Shape(
        layers=len(caches),
        width=width,
        hidden=weights["0.ffn_up"].shape[1],
        heads=all_heads // head,
        groups=groups,
        head=head,
        vocabulary=len(_parameters(model)["embed_tokens"]),
        context=context,
    )


def linear_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """Weights [inputs, outputs] of the linear layers, by names such as ``0.attn_q``."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        match = re.search(r"layers\.(\d+)/(\w+/\w+)/MatMul$", node.name)
        if match and match[2] in LINEAR:
            found[f"{match[1]}.{LINEAR[match[2]]}"] = numpy_helper.to_array(tensors[node.input[1]])
    return found


def _parameters(model: onnx.ModelProto) -> dict[str, Array]:
    """Parameters of the export that kept their names, without ``model.model.`` and ``.weight``."""
    pattern = re.compile(r"(?:model\.)+(.+)\.weight")
    matches = [(tensor, pattern.fullmatch(tensor.name)) for tensor in model.graph.initializer]
    return {match[1]: numpy_helper.to_array(tensor) for tensor, match in matches if match}


def interleaved(weight: Array, head: int) -> Array:
    """Reorder the outputs of a projection: llama.cpp rotates adjacent elements, transformers elements of two halves."""
    outputs, inputs = weight.shape
    return weight.reshape(outputs // head, 2, head // 2, inputs).swapaxes(1, 2).reshape(outputs, inputs)


def write_gguf(
    model: onnx.ModelProto,
    path: Path,
    *,
    context: int,
    weights: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_1,
    embedding: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
) -> None:
    """Write a GGUF file: quantized linear layers, and an embedding that is the head as well. Tokens are numbers."""
    shape, parameters = shape_of(model, context), _parameters(model)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.groups)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(shape.vocabulary)
    _add_vocabulary(writer, shape.vocabulary)
    _add(writer, "token_embd", parameters["embed_tokens"], embedding)
    _add(writer, "output_norm", parameters["norm"])
    for name, weight in linear_weights(model).items():
        rows = np.ascontiguousarray(weight.T)
        is_rotated = name.endswith(("attn_q", "attn_k"))
        _add(writer, f"blk.{name}", interleaved(rows, shape.head) if is_rotated else rows, weights)
    for layer in range(shape.layers):
        for said, name in NORMS.items():
            _add(writer, f"blk.{layer}.{name}", parameters[f"layers.{layer}.{said}"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(
    writer: gguf.GGUFWriter,
    name: str,
    array: Array,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> None:
    """Add a tensor in a type of GGUF."""
    writer.add_tensor(f"{name}.weight", gguf.quants.quantize(array.astype(np.float32), kind), raw_dtype=kind)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Add a vocabulary of numbers, without which llama.cpp loads no decoder."""
    names = [b"<unk>", b"<s>", b"</s>", *(b"\xe2\x96\x81%d" % number for number in range(3, size))]
    kinds = [UNKNOWN_TOKEN, CONTROL_TOKEN, CONTROL_TOKEN] + [NORMAL_TOKEN] * (size - 3)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
