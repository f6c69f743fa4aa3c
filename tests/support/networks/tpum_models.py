"""Models for the tests of the file format, and their comparison. Run as a program, it writes one of them."""

import enum
import hashlib
import math
import struct
import sys
from typing import Any

import numpy as np
import xxhash

from tpuconvert.schema.definition.op import Op, Operand, OpKind, tpu_op
from tpuconvert.schema.file.file_format import FileModel, Note, write_model
from tpuconvert.schema.graph.control_flow import Subgraph
from tpuconvert.schema.graph.graph import Graph, Port, Source, Value
from tpuconvert.schema.ops.host.control import HostIf, HostLoop
from tpuconvert.schema.types import F32, I8, I32, U8, Array, Chip, DType, QuantParams, Scalar, TensorType


class Color(enum.IntEnum):
    RED = 3
    GREEN = 7


class Word(enum.Enum):
    YES = "y"
    NO = "n"


@tpu_op("format_test_all_kinds", OpKind.CUSTOM)
class AllKinds(Op):
    """An operator with one field of every kind that the file format supports."""

    flag: bool = False
    number: int = 0
    real: float = 0.0
    text: str = ""
    numbers: tuple[int, ...] = ()
    pair: tuple[int, int] = (0, 0)
    reals: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()
    flags: tuple[bool, ...] = ()
    color: Color = Color.RED
    word: Word = Word.YES
    colors: tuple[Color, ...] = ()
    dtype: DType = F32
    scalar: Scalar = Scalar(F32, 0.0)
    maybe_number: int | None = None
    maybe_reals: tuple[float, ...] | None = None
    maybe_dtype: DType | None = None
    maybe_scalar: Scalar | None = None

    inputs = (Operand("x"), Operand("w", coeff=True, optional=True), Operand("b", coeff=True, optional=True))

    def infer(self, x: TensorType, w: TensorType | None = None, b: TensorType | None = None) -> tuple[TensorType]:
        return (x,)

    def reference(self, x: Array, w: Array | None = None, b: Array | None = None) -> tuple[Array]:
        return (x,)


@tpu_op("format_test_bytes", OpKind.CUSTOM)
class Blocks(Op):
    """Kinds of fields added later. They are separate, so that the bytes of the first files stay comparable."""

    block: bytes = b""
    maybe_block: bytes | None = None

    inputs = (Operand("x"),)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        return (x,)

    def reference(self, x: Array) -> tuple[Array]:
        return (x,)


@tpu_op("format_test_split", OpKind.CUSTOM)
class Halves(Op):
    """An operator with two results, a parameter without default, and symbolic extents."""

    axis: int

    inputs = (Operand("x"),)
    outputs = (Operand("low"), Operand("high"))

    def __post_init__(self) -> None:
        if self.axis < 0:
            raise ValueError(f"axis {self.axis} is negative")

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        extent = x.shape[self.axis]
        half = extent // 2 if isinstance(extent, int) else "half"
        shape = (*x.shape[: self.axis], half, *x.shape[self.axis + 1 :])
        return (TensorType(x.dtype, shape), TensorType(x.dtype, shape))

    def reference(self, x: Array) -> tuple[Array, Array]:
        low, high = np.split(x, 2, self.axis)
        return low, high


EVERY_KIND: tuple[Op, ...] = (
    AllKinds(),
    AllKinds(flag=True, number=-(1 << 63), real=-0.0, text="Grüße, 世界", word=Word.NO, color=Color.GREEN, dtype=I8),
    AllKinds(number=(1 << 63) - 1, real=1 / 3, numbers=(0, -1, 1 << 40), pair=(7, -7), reals=(0.1, math.inf, -0.0)),
    AllKinds(texts=("", "a", "a"), flags=(True, False), colors=(Color.GREEN, Color.RED), scalar=Scalar(I32, -5)),
    AllKinds(maybe_number=0, maybe_reals=(), maybe_dtype=U8, maybe_scalar=Scalar.f32(0.1)),
    AllKinds(real=math.nan, reals=(math.nan, -math.inf), maybe_scalar=Scalar(U8, 255)),
    AllKinds(real=math.nan, scalar=Scalar(F32, -0.0)),
    AllKinds(real=5e-324, text="with \0 inside"),
    Blocks(),
    Blocks(b"\0\xff\x80 any bytes", b""),
)


def kinds_model() -> FileModel:
    """A chain of nodes with different attributes."""
    graph = Graph("kinds", "kinds.onnx")
    value = graph.input("x", TensorType(F32, (2, 3)))
    for index, op in enumerate(EVERY_KIND):
        with graph.source(Source("kinds.onnx", f"node/{index}", "Kinds"), Source("kinds.onnx", "other", "Relu")):
            value = graph.add(op, value, name=f"y{index}")
    graph.output(value)
    return FileModel(graph, Chip.BM1684, "1.2.3")


def rich_model(seed: int = 0) -> FileModel:
    """Symbolic extents, absent operands, shared constants, quantization, several results, ports that are not values."""
    random = np.random.default_rng(seed)
    graph = Graph("rich", "rich.tflite")
    graph.rescale = "tflite"
    graph.notes.append("batch size 1 assumed")
    per_tensor = QuantParams.per_tensor(0.1, -3, I8)
    port = Port("x", "uint8", ("N", 8, 8, 4), QuantParams.per_tensor(0.5, 128, U8))
    x = graph.input("x:nchw", TensorType(F32, ("N", 4, 8, 8)), port, per_tensor)
    unread = graph.input("unread", TensorType(I32, (5,)))
    stored = random.integers(-128, 128, (4, 3), dtype=np.int8)
    scales = QuantParams(tuple(random.uniform(0.01, 1, 4)), (0, 1, 2, 3), I8, 0)
    w = graph.constant(scales.dequantize(stored), "w", scales, stored)
    same = graph.constant(scales.dequantize(stored), "same content")
    transposed = graph.constant(random.standard_normal((3, 5)).astype(np.float32).T, "not contiguous")
    half = graph.constant(random.standard_normal(7).astype(np.float16), "half")
    empty = graph.constant(np.zeros((0, 3), np.float32), "empty")
    with graph.source(Source("rich.tflite", "a", "CONV_2D")):
        a = graph.add(AllKinds(number=1), x, None, w, name="a")
        a.quant = per_tensor
        b = graph.add(AllKinds(number=2), a, same, transposed, name="b")
    c = graph.add(AllKinds(number=2), b, half, empty, name="c")
    low, high = graph.add_all(Halves(0), c, names=("low", "high"))
    graph.output(high, Port("high", "int64", ()))
    graph.output(low)
    graph.output(low, Port("low again", "bool", ("N", 4)))
    graph.output(unread)
    graph.output(w)
    return FileModel(
        graph,
        Chip.BM1686,
        "0.1.0",
        quantize="int8",
        preprocessing={"size": [8, 8], "mean": [0.5, 1e-3], "order": "rgb", "nested": {"b": None, "a": True}},
        notes=(Note("float", "c", "no integer form"), Note("", "", "second")),
        plugins=("acme",),
        metadata={"z": 1, "a": "two", "groups": [{"nodes": ["a", "b"]}]},
    )


def tiny_model(seed: int = 0, elements: int = 3) -> FileModel:
    """The smallest model that has a constant."""
    graph = Graph("tiny")
    x = graph.input("x", TensorType(F32, (1,)))
    w = graph.constant(np.random.default_rng(seed).standard_normal(elements).astype(np.float32), "w")
    graph.output(graph.add(AllKinds(number=seed), x, w, name="y"))
    return FileModel(graph, Chip.BM1682, "0")


def of_version(version: int, content: bytes) -> bytes:
    """A file as an older version of the format had it: the metadata first, and at first a SHA-256.

    For models whose last constant does not end with a zero.
    """
    at, size = struct.unpack_from("<QQ", content, 24)
    metadata, weights = content[at : at + size], content[128:at].rstrip(b"\0")
    body = metadata + weights
    sizes = (128 + len(body), 128, size, 128 + size, len(weights))
    digest = hashlib.sha256(body).digest() if version == 1 else b"xxh3-128" + xxhash.xxh3_128(body).digest()
    return struct.pack("<8sIIQQQQQ72s", b"TPUM\r\n\x1a\n", version, 128, *sizes, digest) + body


def branch(name: str, number: int, dtype: DType = F32) -> Subgraph:
    graph = Graph(name, "control.onnx")
    x = graph.input("x", TensorType(dtype, (2,)))
    w = graph.constant(np.arange(2, dtype=np.float32) + number, "w")
    graph.output(graph.add(AllKinds(number=number), x, w, name="y"))
    return Subgraph(graph)


def control_model() -> FileModel:
    """A loop whose body has a condition with two branches."""
    body = Graph("body", "control.onnx")
    body.input("iteration", TensorType(I32, (1,)))
    condition = body.input("condition", TensorType(F32, (1,)))
    state = body.input("state", TensorType(F32, (2,)))
    y = body.add(HostIf(branch("then", 1), branch("else", 2)), condition, state, name="y")
    body.output(condition)
    body.output(y)
    graph = Graph("control", "control.onnx")
    trips = graph.input("trips", TensorType(I32, (1,)))
    x = graph.input("x", TensorType(F32, (2,)))
    going = graph.constant(np.ones(1, np.float32), "going")
    graph.output(graph.add(HostLoop(Subgraph(body), 1, 10), trips, going, x, name="last"))
    return FileModel(graph, Chip.BM1686, "0")


MODELS = {"kinds": kinds_model, "rich": rich_model, "tiny": tiny_model, "control": control_model}


def describe_model(model: FileModel) -> dict[str, Any]:
    """All contents of a model in a form comparable with ==. Floats and arrays are compared by their bits."""
    return {
        "model": (model.chip, model.tool_version, model.quantize, model.notes, model.plugins),
        "json": [(list(part.items())) for part in (model.preprocessing, model.metadata)],
        **describe_graph(model.graph),
    }


def describe_graph(graph: Graph) -> dict[str, Any]:
    return {
        "graph": (graph.name, graph.file, graph.rescale, graph.notes),
        "ports": (graph.input_ports, graph.output_ports),
        "ends": ([v.name for v in graph.inputs], [v.name for v in graph.outputs]),
        "values": {value.name: _value(value) for value in graph.values},
        "nodes": [
            (
                type(node.op),
                {name: _bits(item) for name, item in node.op.attributes().items()},
                [value and value.name for value in node.inputs],
                [value.name for value in node.outputs],
                node.sources,
            )
            for node in graph.nodes
        ],
    }


def _value(value: Value) -> tuple[Any, ...]:
    arrays = [None if a is None else (str(a.dtype), a.shape, a.tobytes()) for a in (value.data, value.stored)]
    uses = sorted((node.name, index) for node, index in value.uses)
    return (value.type, value.quant, arrays, value.producer and value.producer.name, uses)


def _bits(item: Any) -> Any:
    if isinstance(item, Subgraph):
        return describe_graph(item.graph)
    if isinstance(item, float):
        return "NaN" if math.isnan(item) else struct.pack("<d", item)
    if isinstance(item, Scalar):
        return (item.dtype, type(item.value), _bits(item.value))
    if isinstance(item, tuple):
        return tuple(map(_bits, item))
    return (type(item), item)


if __name__ == "__main__":
    write_model(sys.argv[2], MODELS[sys.argv[1]]())
