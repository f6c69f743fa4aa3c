"""Random decoder language models with key-value caches, in the forms in which exporters write them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tpuconvert.schema.types import Array

STANDARD, MICROSOFT, EXPLICIT = "standard", "microsoft", "explicit"
FORMS = (STANDARD, MICROSOFT, EXPLICIT)
"""Operators of opset 23; fused operators of com.microsoft, as builders write them; matmuls, as exporters trace them."""


COMPARE, LOOKUP, GATHER_ND, TWO_NUMBERS, WINDOW = "compare", "lookup", "gather_nd", "two numbers", "window"
MASKS = (COMPARE, LOOKUP, GATHER_ND, TWO_NUMBERS, WINDOW)
"""Masks of EXPLICIT: a comparison of ranges and the given mask; lookups of the given mask by positions, as the
TorchScript and the dynamo exporter write them; a sum of two masks; a lookup, and attention to the last keys only."""


@dataclass
class Decoder:
    """Builder of a decoder: RMS norm, rotary embedding, grouped-query attention, SwiGLU, tied embedding.

    Args:
        form: one of FORMS.
        layers: number of blocks.
        heads: number of query heads.
        kv_heads: number of key and value heads.
        size: size of a head.
        hidden: width of the SwiGLU.
        vocabulary: number of tokens.
        positions: rows of the tables of angles.
        has_tables: False to compute angles from ``position_ids``, as transformers does, in the form EXPLICIT.
        mask: one of MASKS, in the form EXPLICIT.
        window: number of keys that a query attends to with the mask WINDOW.
        lengths: names of the numbers of past tokens and of all tokens in the shapes; ``{}`` is the number of the cache.
        names: format of the names of the caches: past and present, with the layer and ``key`` or ``value``.
        seed: of the weights.
    """

    form: str = STANDARD
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    hidden: int = 48
    vocabulary: int = 50
    positions: int = 4096
    has_tables: bool = True
    mask: str = COMPARE
    window: int = 3
    lengths: tuple[str, str] = ("past_sequence_length", "past_sequence_length + sequence_length")
    names: tuple[str, str] = ("past_key_values.{layer}.{part}", "present.{layer}.{part}")
    seed: int = 0
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._count = 0

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return self.heads * self.size

    def cache_names(self, layer: int, part: str) -> tuple[str, str]:
        """Names of the input and the output of a cache."""
        past, present = self.names
        return past.format(layer=layer, part=part), present.format(layer=layer, part=part)

    def build(self) -> onnx.ModelProto:
        """Return the model."""
        self._begin()
        x = self.add("Gather", ["embedding", "input_ids"])
        skip = ""
        for layer in range(self.layers):
            h, x = self._norm(x, skip, f"l{layer}.norm1")
            skip = self._attention(h, layer)
            h, x = self._norm(x, skip, f"l{layer}.norm2")
            gate = self._linear(h, f"l{layer}.gate", self.width, self.hidden)
            up = self._linear(h, f"l{layer}.up", self.width, self.hidden)
            gate = self.add("Mul", [gate, self.add("Sigmoid", [gate])])
            skip = self._linear(self.add("Mul", [gate, up]), f"l{layer}.down", self.hidden, self.width)
        h, _ = self._norm(x, skip, "norm")
        self.add("MatMul", [h, self.add("Transpose", ["embedding"], perm=[1, 0])], ["logits"])
        return self._model()

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node and return its first output."""
        self._count += 1
        outputs = list(outputs) or [f"t{self._count}"]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=f"{op}_{self._count}", **attributes))
        return outputs[0]

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Add a random constant."""
        factor = 1 / np.sqrt(shape[0]) if scale is None else scale
        self.constants[name] = (self._random.normal(size=shape) * factor).astype(np.float32)
        return name

    def ints(self, *numbers: int) -> str:
        """Add a constant of integers [n]."""
        name = f"ints_{'_'.join(map(str, numbers))}"
        self.constants[name] = np.array(numbers, np.int64)
        return name

    def _begin(self) -> None:
        self.weight("embedding", self.vocabulary, self.width, scale=0.5)
        frequencies = 10000.0 ** (-np.arange(self.size // 2) / (self.size // 2))
        angles = np.arange(self.positions)[:, None] * frequencies
        self.constants["cos"], self.constants["sin"] = np.cos(angles).astype("f"), np.sin(angles).astype("f")
        if self.form == MICROSOFT:
            total = self.add("ReduceSum", ["attention_mask", self.ints(1)], keepdims=0)
            self.add("Cast", [self.add("Sub", [total, self.ints(1)])], ["seqlens_k"], to=TensorProto.INT32)
            length = self.add("Gather", [self.add("Shape", ["attention_mask"]), self._scalar(1)], axis=0)
            self.add("Cast", [length], ["total_length"], to=TensorProto.INT32)
        elif self.form == STANDARD:
            mask = self.add("Unsqueeze", [self.add("Cast", ["attention_mask"], to=TensorProto.BOOL), self.ints(1, 2)])
            rows = self.add("Unsqueeze", [self._extent("input_ids", 1), self.ints(0)])
            one = self.ints(1)
            self.add("Expand", [mask, self.add("Concat", [one, one, rows, one], axis=0)], ["mask"])
        else:
            self._explicit_mask()

    def _scalar(self, number: int) -> str:
        name = f"scalar_{number}"
        self.constants[name] = np.array(number, np.int64)
        return name

    def _extent(self, x: str, axis: int) -> str:
        return self.add("Gather", [self.add("Shape", [x]), self._scalar(axis)], axis=0)

    def _explicit_mask(self) -> None:
        """``where(key <= query and attention_mask, 0, lowest)`` with positions from the shapes, or another of MASKS."""
        past, new = self._extent(self.cache_names(0, "key")[0], 2), self._extent("input_ids", 1)
        total = self.add("Add", [past, new])
        query = self.add("Range", [past, total, self._scalar(1)])
        key = self.add("Range", [self._scalar(0), total, self._scalar(1)])
        every_key = key
        query = self.add("Unsqueeze", [query, self.ints(1)])
        key = self.add("Unsqueeze", [key, self.ints(0)])
        causal = self.add("Unsqueeze", [self.add("LessOrEqual", [key, query]), self.ints(0, 1)])
        given = self.add("Cast", ["attention_mask"], to=TensorProto.BOOL)
        self.constants["zero"], self.constants["lowest"] = np.zeros((), "f"), np.float32(np.finfo("f").min).reshape(())
        if self.mask == TWO_NUMBERS:
            self.constants["low"] = np.float32(-1e30).reshape(())
            padding = self.add("Where", [self.add("Unsqueeze", [given, self.ints(1, 2)]), "zero", "low"])
            self.add("Add", [self.add("Where", [causal, "zero", "lowest"]), padding], ["mask"])
            return
        if self.mask == WINDOW:
            first = self.add("Sub", [query, self._scalar(self.window)])
            causal = self.add("And", [causal, self.add("Greater", [key, first])])
        visible = self.add("And", [causal, self._given_by_key(given, every_key)])
        self.add("Where", [visible, "zero", "lowest"], ["mask"])

    def _given_by_key(self, given: str, key: str) -> str:
        """Return the given mask [batch, 1, 1, keys] by one of its lookups."""
        if self.mask not in (LOOKUP, GATHER_ND, WINDOW):
            return self.add("Unsqueeze", [given, self.ints(1, 2)])
        batch = self.add("Range", [self._scalar(0), self._extent("input_ids", 0), self._scalar(1)])
        batch = self.add("Unsqueeze", [batch, self.ints(1, 2, 3)])
        column = self.add("Unsqueeze", [key, self.ints(0, 1, 2)])
        if self.mask != GATHER_ND:
            offset = self.add("Mul", [batch, self._extent("attention_mask", 1)])
            index = self.add("Reshape", [self.add("Add", [column, offset]), self.ints(-1)])
            found = self.add("Gather", [self.add("Flatten", [given], axis=2), index])
            return self.add("Reshape", [found, self.add("Shape", [self.add("Max", [batch, column])])])
        shape = self.add("Shape", [self.add("Max", [batch, column])])
        wide = [self.add("Unsqueeze", [self.add("Expand", [x, shape]), self.ints(-1)]) for x in (batch, column)]
        return self.add("GatherND", [given, self.add("Concat", wide, axis=-1)])

    def _norm(self, x: str, skip: str, name: str) -> tuple[str, str]:
        """Normalize ``x + skip``; return the result and the sum."""
        self.constants[name] = (1 + 0.1 * self._random.normal(size=self.width)).astype(np.float32)
        if self.form == MICROSOFT and skip:
            y = self.add(
                "SkipSimplifiedLayerNormalization", [x, skip, name], [f"{name}.y", "", "", f"{name}.sum"],
                domain="com.microsoft", epsilon=1e-5,
            )  # fmt: skip
            return y, f"{name}.sum"
        x = self.add("Add", [x, skip]) if skip else x
        if self.form == MICROSOFT:
            return self.add("SimplifiedLayerNormalization", [x, name], axis=-1, epsilon=1e-5, stash_type=1), x
        if self.form == STANDARD:
            return self.add("RMSNormalization", [x, name], axis=-1, epsilon=1e-5), x
        self.constants["epsilon"] = np.float32(1e-5).reshape(())
        square = self.add("ReduceMean", [self.add("Mul", [x, x]), self.ints(-1)], keepdims=1)
        root = self.add("Sqrt", [self.add("Add", [square, "epsilon"])])
        return self.add("Mul", [self.add("Div", [x, root]), name]), x

    def _linear(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.add("MatMul", [x, self.weight(name, rows, columns)])

    def _attention(self, h: str, layer: int) -> str:
        kv_width = self.kv_heads * self.size
        q = self._linear(h, f"l{layer}.q", self.width, self.width)
        k = self._linear(h, f"l{layer}.k", self.width, kv_width)
        v = self._linear(h, f"l{layer}.v", self.width, kv_width)
        (past_k, new_k), (past_v, new_v) = (self.cache_names(layer, part) for part in ("key", "value"))
        if self.form == MICROSOFT:
            y = self.add(
                "GroupQueryAttention", [q, k, v, past_k, past_v, "seqlens_k", "total_length", "cos", "sin"],
                [f"l{layer}.y", new_k, new_v], domain="com.microsoft", num_heads=self.heads,
                kv_num_heads=self.kv_heads, do_rotary=1,
            )  # fmt: skip
        elif self.form == STANDARD:
            q = self.add("RotaryEmbedding", [q, "cos", "sin", "position_ids"], num_heads=self.heads)
            k = self.add("RotaryEmbedding", [k, "cos", "sin", "position_ids"], num_heads=self.kv_heads)
            y = self.add(
                "Attention", [q, k, v, "mask", past_k, past_v], [f"l{layer}.y", new_k, new_v], is_causal=1,
                q_num_heads=self.heads, kv_num_heads=self.kv_heads,
            )  # fmt: skip
        else:
            y = self._explicit_attention((q, k, v), (past_k, past_v), (new_k, new_v))
        return self._linear(y, f"l{layer}.o", self.width, self.width)

    def _explicit_attention(self, qkv: tuple[str, str, str], past: tuple[str, str], present: tuple[str, str]) -> str:
        q, k, v = (
            self.add("Transpose", [self.add("Reshape", [x, self.ints(0, 0, heads, self.size)])], perm=[0, 2, 1, 3])
            for x, heads in zip(qkv, (self.heads, self.kv_heads, self.kv_heads), strict=True)
        )
        cos, sin = (self.add("Unsqueeze", [rows, self.ints(1)]) for rows in self._angles())
        q, k = (self._rotate(x, cos, sin) for x in (q, k))
        keys = self._repeat(self.add("Concat", [past[0], k], [present[0]], axis=2))
        values = self._repeat(self.add("Concat", [past[1], v], [present[1]], axis=2))
        self.constants["scale"] = np.float32(1 / np.sqrt(self.size)).reshape(())
        scores = self.add("MatMul", [q, self.add("Transpose", [keys], perm=[0, 1, 3, 2])])
        scores = self.add("Add", [self.add("Mul", [scores, "scale"]), "mask"])
        y = self.add("MatMul", [self.add("Softmax", [scores], axis=-1), values])
        return self.add("Reshape", [self.add("Transpose", [y], perm=[0, 2, 1, 3]), self.ints(0, 0, self.width)])

    def _angles(self) -> tuple[str, str]:
        """Cosines and sines of the positions, ``[batch, tokens, size]``."""
        if self.has_tables:
            cos, sin = (self.add("Gather", [name, "position_ids"]) for name in ("cos", "sin"))
            return self.add("Concat", [cos, cos], axis=-1), self.add("Concat", [sin, sin], axis=-1)
        frequencies = 10000.0 ** (-np.arange(self.size // 2) / (self.size // 2))
        self.constants["frequencies"] = np.tile(frequencies, 2).astype(np.float32).reshape(1, 1, -1)
        numbers = self.add("Unsqueeze", [self.add("Cast", ["position_ids"], to=TensorProto.FLOAT), self.ints(-1)])
        angles = self.add("Mul", [numbers, "frequencies"])
        return self.add("Cos", [angles]), self.add("Sin", [angles])

    def _rotate(self, x: str, cos: str, sin: str) -> str:
        half = self.size // 2
        first = self.add("Slice", [x, self.ints(0), self.ints(half), self.ints(3)])
        second = self.add("Slice", [x, self.ints(half), self.ints(self.size), self.ints(3)])
        turned = self.add("Concat", [self.add("Neg", [second]), first], axis=-1)
        return self.add("Add", [self.add("Mul", [x, cos]), self.add("Mul", [turned, sin])])

    def _repeat(self, x: str) -> str:
        """Repeat each head for the query heads that share it."""
        if self.heads == self.kv_heads:
            return x
        batch, length = (self.add("Unsqueeze", [self._extent(x, axis), self.ints(0)]) for axis in (0, 2))
        heads, group, size = self.ints(self.kv_heads), self.ints(self.heads // self.kv_heads), self.ints(self.size)
        target = self.add("Concat", [batch, heads, group, length, size], axis=0)
        wide = self.add("Expand", [self.add("Unsqueeze", [x, self.ints(2)]), target])
        flat = self.add("Concat", [batch, self.ints(self.heads), length, size], axis=0)
        return self.add("Reshape", [wide, flat])

    def _model(self) -> onnx.ModelProto:
        before, after = self.lengths
        ids, mask = ("batch", "sequence_length"), ("batch", "total_sequence_length")
        inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ids)]
        inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, mask))
        if self.form != MICROSOFT:
            inputs.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ids))
        logits = ("batch", "sequence_length", self.vocabulary)
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)]
        for number, (layer, part) in enumerate(itertools.product(range(self.layers), ("key", "value"))):
            past, present = self.cache_names(layer, part)
            for values, name, length in ((inputs, past, before), (outputs, present, after)):
                shape = ("batch", self.kv_heads, length.format(number), self.size)
                values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, constants)
        imports = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=11)


def decoder(form: str = STANDARD, **settings: Any) -> onnx.ModelProto:
    """Return a random decoder in one of FORMS; see ``Decoder`` for the settings."""
    return Decoder(form, **settings).build()
