"""Decoders with ``GroupQueryAttention``, as optimum and the builder of ONNX Runtime GenAI write them, from weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tools.zoo.decoders import decoder_cases as names
from tools.zoo.decoders.decoder_cases import cache_names
from tools.zoo.files import Array

MICROSOFT = "com.microsoft"
LOWEST_OPSET = 21


def build(model: Any, others: Sequence[str]) -> onnx.ModelProto:
    """Return the graph of a decoder of transformers.

    Args:
        model: the decoder.
        others: names of the inputs besides ids and caches: the mask, and perhaps positions.
    """
    return _Builder(model, others).build()


class _Builder:
    """Nodes and constants of one decoder."""

    def __init__(self, model: Any, others: Sequence[str]) -> None:
        self._config, self._others = model.config, others
        self._weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, Array] = {}
        self._family = model.config.model_type
        self._heads = model.config.num_attention_heads
        self._groups = getattr(model.config, "num_key_value_heads", self._heads)
        self._layers = model.config.num_hidden_layers
        self._width = model.config.hidden_size
        self._size = getattr(model.config, "head_dim", None) or self._width // self._heads
        rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
        self._inverse = None if rotary is None else rotary.inv_freq.numpy()
        self._root = "transformer" if self._family == "gpt2" else "model"

    def build(self) -> onnx.ModelProto:
        """Return the model."""
        self._lengths()
        self._angles()
        x = self._embed()
        for layer in range(self._layers):
            x = self._block(x, layer)
        norm = {"phi": "model.final_layernorm", "gpt2": "transformer.ln_f"}.get(self._family, "model.norm")
        head = self._linear(self._norm(x, norm), "lm_head")
        self._nodes.append(helper.make_node("Identity", [head], ["logits"], name="/logits"))
        return self._model()

    def _add(self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node and return its first output."""
        name = f"/{op}_{len(self._nodes)}"
        results = list(outputs) or [f"{name}/output_0"]
        self._nodes.append(helper.make_node(op, list(inputs), results, name=name, **attributes))
        return results[0]

    def _constant(self, name: str, array: Any) -> str:
        self._constants[name] = np.ascontiguousarray(array)
        return name

    def _ints(self, *numbers: int) -> str:
        return self._constant(f"ints_{'_'.join(map(str, numbers))}", np.array(numbers, np.int64))

    def _scalar(self, number: float) -> str:
        return self._constant(f"scalar_{number}", np.array(number, np.float32))

    def _lengths(self) -> None:
        """The number of tokens from the mask: without the last one, and of all."""
        total = self._add("ReduceSum", [names.MASK, self._ints(1)], keepdims=0)
        self._add("Cast", [self._add("Sub", [total, self._ints(1)])], ["seqlens_k"], to=TensorProto.INT32)
        index = self._constant("one", np.array(1, np.int64))
        length = self._add("Gather", [self._add("Shape", [names.MASK]), index], axis=0)
        self._add("Cast", [length], ["total_seq_len"], to=TensorProto.INT32)

    def _angles(self) -> None:
        if self._inverse is not None:
            angles = np.arange(self._config.max_position_embeddings, dtype=np.float32)[:, None] * self._inverse
            self._constant("cos_cache", np.cos(angles)), self._constant("sin_cache", np.sin(angles))

    def _positions(self) -> str:
        """Positions of the new tokens: the input, or counted from the mask."""
        if names.POSITIONS in self._others:
            return names.POSITIONS
        one = self._constant("one", np.array(1, np.int64))
        total = self._add("Gather", [self._add("Shape", [names.MASK]), one], axis=0)
        new = self._add("Gather", [self._add("Shape", ["input_ids"]), one], axis=0)
        row = self._add("Range", [self._add("Sub", [total, new]), total, one])
        shape = self._add("Shape", ["input_ids"])
        return self._add("Expand", [self._add("Unsqueeze", [row, self._ints(0)]), shape])

    def _embed(self) -> str:
        table = "wte" if self._family == "gpt2" else "embed_tokens"
        x = self._add("Gather", [self._weight(f"{self._root}.{table}.weight"), "input_ids"])
        if self._family == "gpt2":
            rows = self._add("Gather", [self._weight("transformer.wpe.weight"), self._positions()])
            x = self._add("Add", [x, rows])
        if self._family == "gemma":
            x = self._add("Mul", [x, self._scalar(float(np.float32(self._width**0.5)))])
        return x

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _linear(self, x: str, name: str) -> str:
        """Multiply by a weight, and add the bias if there is one. GPT-2 stores weights transposed."""
        weight = self._weights[f"{name}.weight"]
        is_plain = self._family == "gpt2" and name != "lm_head"
        y = self._add("MatMul", [x, self._constant(f"{name}.MatMul.weight", weight if is_plain else weight.T)])
        has_bias = f"{name}.bias" in self._weights
        return self._add("Add", [y, self._weight(f"{name}.bias")]) if has_bias else y

    def _norm(self, x: str, name: str) -> str:
        """Normalize rows; Gemma stores the weights minus 1."""
        weight = self._weights[f"{name}.weight"] + (self._family == "gemma")
        operands = [x, self._constant(f"{name}.weight", weight.astype(np.float32))]
        if f"{name}.bias" in self._weights:
            epsilon = getattr(self._config, "layer_norm_eps", None) or self._config.layer_norm_epsilon
            return self._add("LayerNormalization", [*operands, self._weight(f"{name}.bias")], axis=-1, epsilon=epsilon)
        settings = {"axis": -1, "epsilon": self._config.rms_norm_eps, "stash_type": 1}
        return self._add("SimplifiedLayerNormalization", operands, **settings)

    def _block(self, x: str, layer: int) -> str:
        at = f"{self._root}.{'h' if self._family == 'gpt2' else 'layers'}.{layer}"
        first = f"{at}.{'ln_1' if self._family == 'gpt2' else 'input_layernorm'}"
        h = self._norm(x, first)
        y = self._attention(h, at, layer)
        if self._family == "phi":  # both branches read the same norm
            return self._add("Add", [self._add("Add", [y, self._feed_forward(h, f"{at}.mlp")]), x])
        x = self._add("Add", [x, y])
        second = f"{at}.{'ln_2' if self._family == 'gpt2' else 'post_attention_layernorm'}"
        return self._add("Add", [x, self._feed_forward(self._norm(x, second), f"{at}.mlp")])

    def _feed_forward(self, h: str, at: str) -> str:
        if self._family in ("gpt2", "phi"):
            up, down = ("c_fc", "c_proj") if self._family == "gpt2" else ("fc1", "fc2")
            return self._linear(
                self._add("FastGelu", [self._linear(h, f"{at}.{up}")], domain=MICROSOFT), f"{at}.{down}"
            )
        if self._family == "mixtral":
            return self._experts(h, at)
        return self._gated(h, f"{at}.gate_proj", f"{at}.up_proj", f"{at}.down_proj")

    def _gated(self, h: str, gate: str, up: str, down: str) -> str:
        g = self._linear(h, gate)
        g = (
            self._add("FastGelu", [g], domain=MICROSOFT)
            if self._family == "gemma"
            else self._add("Mul", [g, self._add("Sigmoid", [g])])
        )
        return self._linear(self._add("Mul", [g, self._linear(h, up)]), down)

    def _experts(self, h: str, at: str) -> str:
        """Sum of all experts, weighted by a softmax over the best ones that is 0 for the others."""
        count, best = self._config.num_local_experts, self._config.num_experts_per_tok
        scores = self._add("MatMul", [h, self._constant(f"{at}.gate.T", self._weights[f"{at}.gate.weight"].T)])
        self._add("TopK", [scores, self._ints(best)], [f"{at}.top", f"{at}.index"], axis=-1)
        least = self._add("ReduceMin", [f"{at}.top", self._ints(-1)], keepdims=1)
        lowest = self._scalar(float(np.finfo(np.float32).min))
        kept = self._add("Where", [self._add("Less", [scores, least]), lowest, scores])
        share = self._add("Softmax", [kept], axis=-1)
        total = ""
        packed, downs = (self._weights[f"{at}.experts.{part}"] for part in ("gate_up_proj", "down_proj"))
        half = packed.shape[1] // 2
        for expert in range(count):
            name = f"{at}.experts.{expert}"
            self._weights |= {
                f"{name}.w1.weight": packed[expert, :half],
                f"{name}.w3.weight": packed[expert, half:],
                f"{name}.w2.weight": downs[expert],
            }
            y = self._gated(h, f"{name}.w1", f"{name}.w3", f"{name}.w2")
            part = self._add("Slice", [share, self._ints(expert), self._ints(expert + 1), self._ints(-1)])
            y = self._add("Mul", [y, part])
            total = self._add("Add", [total, y]) if total else y
        return total

    def _attention(self, h: str, at: str, layer: int) -> str:
        operands = self._queries(h, at)
        past, present = (pair[2 * layer : 2 * layer + 2] for pair in cache_names(self._layers))
        width = 0 if self._inverse is None else 2 * len(self._inverse)
        settings = {"num_heads": self._heads, "kv_num_heads": self._groups, "do_rotary": 0, "rotary_interleaved": 0}
        tables = ["", ""]
        if 0 < width < self._size:
            settings_of_rotation: dict[str, Any] = {"domain": MICROSOFT, "rotary_embedding_dim": width}
            positions = self._positions()
            for index, heads in enumerate((self._heads, self._groups)):
                rotated = [operands[index], positions, "cos_cache", "sin_cache"]
                operands[index] = self._add("RotaryEmbedding", rotated, num_heads=heads, **settings_of_rotation)
        elif width:
            settings["do_rotary"], tables = 1, ["cos_cache", "sin_cache"]
        y = self._add(
            "GroupQueryAttention", [*operands, *past, "seqlens_k", "total_seq_len", *tables],
            [f"{at}.attention", *present], domain=MICROSOFT, scale=float(self._size**-0.5),
            local_window_size=-1, softcap=0.0, **settings,
        )  # fmt: skip
        out = {"gpt2": "attn.c_proj", "phi": "self_attn.dense"}.get(self._family, "self_attn.o_proj")
        return self._linear(y, f"{at}.{out}")

    def _queries(self, h: str, at: str) -> list[str]:
        """Query, key and value; packed in the first operand where nothing is between them and the attention."""
        if self._family == "gpt2":
            return [self._linear(h, f"{at}.attn.c_attn"), "", ""]
        parts = [f"{at}.self_attn.{part}_proj" for part in "qkv"]
        if self._family in ("llama", "gemma", "mixtral"):
            self._weights[f"{at}.qkv.weight"] = np.concatenate([self._weights[f"{part}.weight"] for part in parts])
            return [self._linear(h, f"{at}.qkv"), "", ""]
        q, k, v = (self._linear(h, part) for part in parts)
        if self._family == "qwen3":
            q, k = (
                self._norm_heads(x, f"{at}.self_attn.{part}_norm", heads)
                for x, part, heads in ((q, "q", self._heads), (k, "k", self._groups))
            )
        return [q, k, v]

    def _norm_heads(self, x: str, name: str, heads: int) -> str:
        rows = self._add("Reshape", [x, self._ints(0, -1, self._size)])
        return self._add("Reshape", [self._norm(rows, name), self._ints(0, -1, heads * self._size)])

    def _model(self) -> onnx.ModelProto:
        ids, logits = ("batch_size", "sequence_length"), ("batch_size", "sequence_length", self._config.vocab_size)
        total = "total_sequence_length"
        shapes = {"input_ids": ids, names.MASK: ("batch_size", total), names.POSITIONS: ids}
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, shapes[name])
            for name in ("input_ids", *self._others)
        ]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)]
        for cache, present in zip(*cache_names(self._layers), strict=True):
            for values, name, length in ((inputs, cache, "past_sequence_length"), (outputs, present, total)):
                shape = ("batch_size", self._groups, length, self._size)
                values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        constants = [numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        graph = helper.make_graph(self._nodes, "main_graph", inputs, outputs, constants)
        imports = [helper.make_opsetid("", LOWEST_OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)
