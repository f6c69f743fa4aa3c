"""Small valid models, one per operator and kind of operands, for the systematic changes of their structure."""

from __future__ import annotations

import importlib
import pkgutil
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from tests.support.onnx import cases as onnx_cases
from tests.support.onnx.microsoft_cases import CASES as MICROSOFT
from tests.support.onnx.models import model, one, ramp
from tests.support.tflite import hand_cases as hand
from tests.support.tflite import integer_cases as integers
from tests.support.tflite.cases import all_cases, numbers
from tests.support.tflite.models import O, S, T, single
from tests.support.tflite.reference import subgraph_of
from tpuconvert.frontends.onnx.file.reader import NEWEST_OPSET
from tpuconvert.frontends.onnx.node import onnx_op

# TFLite


def tflite_models() -> list[list[S]]:
    """One model per operator, for float operands and for quantized ones."""
    found: dict[tuple[str, bool], list[S]] = {}
    for graphs in _tflite_models():
        operators = [operator.name for graph in graphs for operator in graph.operators]
        is_quantized = any(tensor.scale for tensor in graphs[0].tensors)
        for name in dict.fromkeys(operators):
            found.setdefault((name, is_quantized), graphs)
    return list({id(graphs): graphs for graphs in found.values()}.values())


def _tflite_models() -> Iterator[list[S]]:
    for case in all_cases():
        yield [subgraph_of(case), *case.subgraphs]
    for case in hand.CASES:
        yield [hand.subgraph_of(case)]
    for make, types in integers.CASES.values():
        yield [make(np.random.default_rng(0), types[0])]
    yield from ([_spectrum(part)] for part in ("REAL", "IMAG", "COMPLEX_ABS"))
    yield _loop("WHILE", "WhileOptions")
    yield _loop("STABLEHLO_WHILE", "StablehloWhileOptions")
    yield from (_counter(), [_detection()], [_transposed_convolution()], _reduction(), _sorting(), _call(), _widened())


def _spectrum(part: str) -> S:
    lengths = T("n", data=np.asarray((4, 8), np.int32))
    tensors = [T("x", (2, 4, 8)), lengths, T("s", (2, 4, 5), "COMPLEX64"), T("y", (2, 4, 5))]
    return S(tensors, [O("RFFT2D", [0, 1], [2], "Rfft2dOptions"), O(part, [2], [3])], [0], [3])


def _loop(name: str, table: str) -> list[S]:
    """Double a tensor twice."""
    main = single(
        name, [T(data=np.int32(0)), T(shape=(2,))], [T(shape=(), type="INT32"), T(shape=(2,))], table,
        cond_subgraph_index=1, body_subgraph_index=2,
    )  # fmt: skip
    state = [T("i", (), "INT32"), T("x", (2,))]
    condition = S([*state, T("n", data=np.int32(2)), T("c", (), "BOOL")], [O("LESS", [0, 2], [3])], [0, 1], [3])
    steps = [O("ADD", [0, 2], [3], "AddOptions"), O("ADD", [1, 1], [4], "AddOptions")]
    body = S([*state, T("one", data=np.int32(1)), T("next", (), "INT32"), T("two", (2,))], steps, [0, 1], [3, 4])
    return [main, condition, body]


def _counter() -> list[S]:
    """Add the input to a variable."""
    handle = O("VAR_HANDLE", [], [1], "VarHandleOptions", {"shared_name": "total"})
    first = O("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1})
    steps = [O("READ_VARIABLE", [1], [2]), O("ADD", [0, 2], [3], "AddOptions"), O("ASSIGN_VARIABLE", [1, 3], [])]
    main = S([T("x", (2,)), T("h", (), "RESOURCE"), T("v", (2,)), T("y", (2,))], [first, handle, *steps], [0], [3])
    own = O("VAR_HANDLE", [], [0], "VarHandleOptions", {"shared_name": "total"})
    tensors = [T("h", (), "RESOURCE"), T("c", data=np.asarray([1, 2], np.float32))]
    return [main, S(tensors, [own, O("ASSIGN_VARIABLE", [0, 1], [])], [], [], "init")]


def _detection() -> S:
    settings = {
        **{"max_detections": 6, "max_classes_per_detection": 1, "nms_score_threshold": 0.3, "nms_iou_threshold": 0.5},
        **{"num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
    }
    tensors = [T("boxes", (1, 9, 4)), T("scores", (1, 9, 4)), T("anchors", data=numbers("anchors", (9, 4), 0.1, 0.9))]
    results = [T(f"y{index}", (1,)) for index in range(4)]
    custom = bytes(flexbuffers.Dumps(settings))
    operator = O("CUSTOM:TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=custom)
    return S([*tensors, *results], [operator], [0, 1], [3, 4, 5, 6])


def _transposed_convolution() -> S:
    tensors = [T("x", (1, 1, 2, 1)), T("w", data=numbers("w", (1, 1, 3, 1))), T("b", data=numbers("b", (1,)))]
    operator = O("CUSTOM:Convolution2DTransposeBias", [0, 1, 2], [3], custom=struct.pack("<3i", 2, 2, 1))
    return S([*tensors, T("y", (1, 1, 5, 1))], [operator], [0], [3])


def _reduction() -> list[S]:
    options = {"dimensions": [1], "body_subgraph_index": 1}
    operands = [T(shape=(2, 3)), T(data=np.float32(0))]
    body = S([T("a"), T("b"), T("c")], [O("STABLEHLO_ADD", [0, 1], [2])], [0, 1], [2])
    return [single("STABLEHLO_REDUCE", operands, [T(shape=(2,))], "StablehloReduceOptions", **options), body]


def _sorting() -> list[S]:
    compare = O("STABLEHLO_COMPARE", [0, 1], [2], "StablehloCompareOptions", {"comparison_direction": 5})
    options = {"dimension": 0, "comparator_subgraph_index": 1}
    main = single("STABLEHLO_SORT", [T(shape=(3,))], [T(shape=(3,))], "StablehloSortOptions", **options)
    return [main, S([T("a"), T("b"), T("c", (), "BOOL")], [compare], [0, 1], [2])]


def _call() -> list[S]:
    main = single("CALL", [T(shape=(2,))], [T(shape=(2,))], "CallOptions", subgraph=1)
    return [main, S([T("a", (2,)), T("b", (2,))], [O("NEG", [0], [1])], [0], [1], "negate")]


def _widened() -> list[S]:
    """Weights of half precision, which are densified and widened."""
    tensors = [T("x", (3, 6)), T("h", data=numbers("h", (4, 6), -1, 1, "float16")), T("d", (4, 6), "FLOAT16")]
    steps = [O("DENSIFY", [1], [2]), O("DEQUANTIZE", [2], [3])]
    product = O("FULLY_CONNECTED", [0, 3, -1], [4], "FullyConnectedOptions")
    return [S([*tensors, T("w", (4, 6)), T("y", (3, 4))], [*steps, product], [0], [4])]


# ONNX


def onnx_models() -> list[onnx.ModelProto]:
    """One model per operator, version and kinds of operands: elements of inputs and constants."""
    found: dict[tuple[object, ...], onnx.ModelProto] = {}
    for proto in _onnx_models():
        nodes, given = proto.graph.node, {value.name: "input" for value in proto.graph.input}
        given |= {tensor.name: "constant" for tensor in proto.graph.initializer}
        kinds = tuple(given.get(name) for node in nodes for name in node.input)
        names = tuple((node.op_type, node.domain, _version(proto, node)) for node in nodes)
        found.setdefault((names, kinds), proto)
    return list(found.values())


def _version(proto: onnx.ModelProto, node: onnx.NodeProto) -> int:
    """First version of the operator with the meaning that it has in a model."""
    found = onnx_op.find(node.op_type, version=proto.opset_import[0].version, domain=node.domain)
    return 0 if found is None else found.since


def _onnx_models() -> Iterator[onnx.ModelProto]:
    for module in sorted(pkgutil.iter_modules(onnx_cases.__path__), key=lambda item: item.name):
        for case in getattr(importlib.import_module(f"{onnx_cases.__name__}.{module.name}"), "CASES", ()):
            yield from (version.model() for version in case.in_all_versions(NEWEST_OPSET))
    for case in MICROSOFT:
        yield case.model()
    yield from (
        _if(),
        _loop_over(False),
        _loop_over(True),
        _scan(),
        *_quantized(),
        *_sequences(),
        *_random(),
        _grouped(),
    )


def _info(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _if() -> onnx.ModelProto:
    branches = {
        f"{name}_branch": helper.make_graph([one(op, "x", outputs=["r"])], name, [], [_info("r")])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    return model([one("If", "c", **branches)], {"x": ramp(2, 3), "c": np.bool_(True)}, ["y"])


def _loop_over(computed: bool) -> onnx.ModelProto:
    steps = [one("Add", "s", "s", outputs=["t"]), one("Identity", "going", outputs=["go"])]
    inputs = [_info("i", TensorProto.INT64, []), _info("going", TensorProto.BOOL, []), _info("s")]
    body = helper.make_graph(steps, "body", inputs, [_info("go", TensorProto.BOOL), _info("t")])
    given = {"x": ramp(2, 3), **({"n": np.int64(3)} if computed else {})}
    return model([one("Loop", "n", "", "x", body=body)], given, ["y"], {} if computed else {"n": np.int64(3)})


def _scan() -> onnx.ModelProto:
    steps = [one("Add", "s", "part", outputs=["t"]), one("Identity", "t", outputs=["out"])]
    body = helper.make_graph(steps, "body", [_info("s"), _info("part")], [_info("t"), _info("out")])
    node = one("Scan", "first", "x", outputs=["last", "y"], body=body, num_scan_inputs=1)
    return model([node], {"first": ramp(3), "x": ramp(4, 3)}, ["last", "y"])


def _quantized() -> Iterator[onnx.ModelProto]:
    scale, zero = np.float32(0.05), np.uint8(3)
    image, kernel = np.ones((1, 2, 4, 4), np.uint8), np.ones((3, 2, 3, 3), np.uint8)
    for op, x, w in (("QLinearConv", image, kernel), ("QLinearMatMul", image[0, 0], image[0, 1])):
        constants = {"s": scale, "z": zero, "w": w}
        yield model([one(op, "x", "s", "z", "w", "s", "z", "s", "z")], {"x": x}, ["y"], constants)


def _sequences() -> Iterator[onnx.ModelProto]:
    make = one("SequenceConstruct", "x", "x", outputs=["q"])
    for op, more in (("SequenceAt", ["n"]), ("ConcatFromSequence", []), ("SequenceLength", [])):
        attributes = {"axis": 0} if op.startswith("Concat") else {}
        yield model([make, one(op, "q", *more, **attributes)], {"x": ramp(2, 3)}, ["y"], {"n": np.int64(1)})
    for op, more in (("SequenceInsert", ["x", "n"]), ("SequenceErase", ["n"])):
        nodes = [make, one(op, "q", *more, outputs=["r"]), one("SequenceAt", "r", "n0")]
        yield model(nodes, {"x": ramp(2, 3)}, ["y"], {"n": np.int64(1), "n0": np.int64(0)})
    for op, result in (("OptionalGetElement", "y"), ("OptionalHasElement", "y")):
        optional = one("Optional", "x", outputs=["o"])
        yield model([optional, one(op, "o", outputs=[result])], {"x": ramp(2, 3)}, ["y"], opset=18)
    body = helper.make_graph([one("Relu", "part", outputs=["r"])], "body", [_info("part")], [_info("r")])
    mapped = one("SequenceMap", "q", outputs=["p"], body=body)
    yield model([make, mapped, one("SequenceAt", "p", "n")], {"x": ramp(2, 3)}, ["y"], {"n": np.int64(1)})
    empty = one("SequenceEmpty", outputs=["q"])
    yield model([empty, one("SequenceInsert", "q", "x", outputs=["r"]), one("SequenceAt", "r", "n")],
                {"x": ramp(2, 3)}, ["y"], {"n": np.int64(0)})  # fmt: skip
    split = one("SplitToSequence", "x", "n", outputs=["q"], axis=1)
    yield model([split, one("SequenceAt", "q", "n")], {"x": ramp(2, 3)}, ["y"], {"n": np.int64(1)})


def _random() -> Iterator[onnx.ModelProto]:
    for op in ("RandomNormal", "RandomUniform"):
        yield model([one(op, outputs=["r"], shape=[2, 3]), one("Add", "x", "r")], {"x": ramp(2, 3)}, ["y"])
        yield model([one(f"{op}Like", "x", outputs=["r"]), one("Add", "x", "r")], {"x": ramp(2, 3)}, ["y"])


def _grouped() -> onnx.ModelProto:
    """Attention with a cache and rotary embedding, of 4 query heads and 2 key heads with 16 elements."""
    given = {"q": ramp(1, 2, 64), "k": ramp(1, 2, 32), "v": ramp(1, 2, 32), "pk": ramp(1, 2, 3, 16)}
    given |= {"pv": ramp(1, 2, 3, 16), "n": np.array([4], np.int32), "t": np.array([5], np.int32)}
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "domain": "com.microsoft"}
    node = one("GroupQueryAttention", *given, "cos", "sin", outputs=["y", "nk", "nv"], **attributes)
    constants = {"cos": ramp(16, 8), "sin": ramp(16, 8)}
    return model([node], given, ["y", "nk", "nv"], constants, domains={"com.microsoft": 1})
