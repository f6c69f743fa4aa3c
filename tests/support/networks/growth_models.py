"""Small ONNX models by size: each function makes a model in which one countable thing occurs ``n`` times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.helper import make_node

Maker = Callable[[int], ModelProto]
MODELS: dict[str, Maker] = {}
"""Name of what grows -> function that makes the model."""

FLOAT = TensorProto.FLOAT
Link = Callable[[int, str, str], NodeProto]
"""Makes node ``i`` of a chain, from the names of its input and its output."""


def port(name: str, shape: Sequence[int | str] | None = (1, 4), element: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


X, Y, ANY = port("x"), port("y"), port("y", None)


def values(*shape: int) -> np.ndarray:
    return ((np.arange(np.prod(shape), dtype=np.float32) + 1) / 7).reshape(shape)


def model(
    nodes: Sequence[NodeProto],
    outputs: Sequence[ValueInfoProto] = (Y,),
    constants: dict[str, np.ndarray] | None = None,
    *,
    inputs: Sequence[ValueInfoProto] = (X,),
    functions: Sequence[FunctionProto] = (),
    infos: Sequence[ValueInfoProto] = (),
) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "growth", inputs, outputs, tensors, value_info=infos)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("local", 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def chain(n: int, link: Link) -> list[NodeProto]:
    """``n`` nodes from x to y, each of which reads the one before it."""
    return [link(i, f"t{i - 1}" if i else "x", f"t{i}" if i < n - 1 else "y") for i in range(n)]


def grows(function: Maker) -> Maker:
    MODELS[function.__name__.replace("_", " ")] = function
    return function


def chains(name: str, link: Link, constants: dict[str, np.ndarray] | None = None, output: ValueInfoProto = ANY) -> None:
    MODELS[name] = lambda n: model(chain(n, link), [output], constants)


def one(operator: str, **attributes: object) -> Link:
    return lambda _, a, b: make_node(operator, [a], [b], **attributes)


def with_x(operator: str, *, first: bool = False, **attributes: object) -> Link:
    return lambda _, a, b: make_node(operator, ["x", a] if first else [a, "x"], [b], **attributes)


def alternating(*links: Link) -> Link:
    return lambda i, a, b: links[i % len(links)](i, a, b)


INDICES = {"begin": np.array([2]), "end": np.array([6]), "axis": np.array([1])}
CUT: Link = lambda _, a, b: make_node("Slice", [a, "begin", "end", "axis"], [b])  # noqa: E731
SQUARE: Link = lambda _, a, b: make_node("Mul", [a, a], [b])  # noqa: E731

chains("nodes", one("Sin"))
chains("nodes that are merged", one("Identity"))
chains("nodes of two kinds", alternating(one("Neg"), one("Exp")))
chains("sums with themselves", lambda _, a, b: make_node("Add", [a, a], [b]))
chains("squares of activations", alternating(one("Sigmoid"), SQUARE))
for NAME in ("Add", "Mul", "Max"):
    chains(f"nodes that read x: {NAME}", with_x(NAME))
chains("differences from x", with_x("Sub", first=True))
chains("matmuls", lambda _, a, b: make_node("MatMul", [a, "w"], [b]), {"w": values(4, 4)})
chains("nested concats", with_x("Concat", axis=1))
chains(
    "nested concats with a constant", lambda _, a, b: make_node("Concat", [a, "k"], [b], axis=1), {"k": values(1, 1)}
)
chains("concats and slices", alternating(with_x("Concat", axis=1), CUT), INDICES)
chains("pads", lambda _, a, b: make_node("Pad", [a, "p"], [b]), {"p": np.array([0, 1, 0, 1])})
chains("softmaxes", one("Softmax", axis=1))
chains("layer norms", lambda _, a, b: make_node("LayerNormalization", [a, "w", "w"], [b]), {"w": values(4)})
chains("casts", alternating(one("Cast", to=TensorProto.INT32), one("Cast", to=FLOAT)))
chains("einsums", lambda _, a, b: make_node("Einsum", [a, "w"], [b], equation="ij,jk->ik"), {"w": values(4, 4)})
chains(
    "clips",
    lambda _, a, b: make_node("Clip", [a, "low", "high"], [b]),
    {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)},
)
chains(
    "reshapes",
    lambda i, a, b: make_node("Reshape", [a, f"s{i % 2}"], [b]),
    {"s0": np.array([2, 2]), "s1": np.array([1, 4])},
)

for NAME in ("Sum", "Max", "Mean"):
    MODELS[f"operands of {NAME}"] = lambda n, name=NAME: model([make_node(name, ["x"] * n, ["y"])])
MODELS["operands of Einsum"] = lambda n: model(
    [make_node("Einsum", ["x"] * n, ["y"], equation=f"{','.join(['ij'] * n)}->ij")]
)
for NUMBER in (0, 1):
    MODELS[f"operands of Concat along axis {NUMBER}"] = lambda n, axis=NUMBER: model(
        [make_node("Concat", ["x"] * n, ["y"], axis=axis)], [ANY]
    )


@grows
def constants(n: int) -> ModelProto:
    nodes = chain(n, lambda i, a, b: make_node("Add", [a, f"c{i}"], [b]))
    return model(nodes, constants={f"c{i}": values(4) * i for i in range(n)})


@grows
def inputs(n: int) -> ModelProto:
    names = [f"x{i}" for i in range(n)]
    return model([make_node("Concat", names, ["y"], axis=1)], [ANY], inputs=[port(name) for name in names])


@grows
def outputs(n: int) -> ModelProto:
    names = [f"y{i}" for i in range(n)]
    nodes = [make_node("Add", ["x", f"c{i}"], [name]) for i, name in enumerate(names)]
    return model(nodes, [port(name) for name in names], {f"c{i}": values(4) * i for i in range(n)})


@grows
def outputs_that_are_one_value(n: int) -> ModelProto:
    names = [f"y{i}" for i in range(n)]
    nodes = [make_node("Sin", ["x"], ["t"]), *(make_node("Identity", ["t"], [name]) for name in names)]
    return model(nodes, [port(name) for name in names])


@grows
def branches(n: int) -> ModelProto:
    nodes = [make_node("MatMul", ["x", f"w{i}"], [f"t{i}"]) for i in range(n)]
    nodes.append(make_node("Concat", [f"t{i}" for i in range(n)], ["y"], axis=1))
    return model(nodes, [ANY], {f"w{i}": values(4, 4) + i for i in range(n)})


@grows
def slices_of_one_tensor(n: int) -> ModelProto:
    nodes = [make_node("Slice", ["x", f"c{i}", f"c{i + 1}", "axis"], [f"t{i}"]) for i in range(n)]
    nodes.append(make_node("Concat", [f"t{n - 1 - i}" for i in range(n)], ["y"], axis=1))
    indices = {f"c{i}": np.array([i]) for i in range(n + 1)}
    return model(nodes, [ANY], {"axis": np.array([1]), **indices}, inputs=[port("x", [1, n])])


@grows
def results_of_split(n: int) -> ModelProto:
    parts = [f"t{i}" for i in range(n)]
    nodes = [make_node("Split", ["x"], parts, axis=1), make_node("Concat", parts[::-1], ["y"], axis=1)]
    return model(nodes, [ANY], inputs=[port("x", [1, n])])


@grows
def reshaped_results_of_split(n: int) -> ModelProto:
    nodes = [make_node("Split", ["x"], [f"t{i}" for i in range(n)], axis=0)]
    nodes += [make_node("Squeeze", [f"t{i}", "axis"], [f"y{i}"]) for i in range(n)]
    results = [port(f"y{i}", [4]) for i in range(n)]
    return model(nodes, results, {"axis": np.array([0])}, inputs=[port("x", [n, 4])])


@grows
def unused_nodes(n: int) -> ModelProto:
    return model([*(make_node("Sin", ["x"], [f"t{i}"]) for i in range(n)), make_node("Cos", ["x"], ["y"])])


@grows
def equal_names_of_nodes(n: int) -> ModelProto:
    return model(chain(n, lambda _, a, b: make_node("Sin", [a], [b], name="same")))


@grows
def declared_tensors(n: int) -> ModelProto:
    return model([make_node("Cos", ["x"], ["y"])], infos=[port(f"v{i}") for i in range(n)])


@grows
def characters_of_a_name(n: int) -> ModelProto:
    return model([make_node("Sin", ["x"], ["q" * n]), make_node("Cos", ["q" * n], ["y"])])


@grows
def scopes_of_a_name(n: int) -> ModelProto:
    name = "/".join(map(str, range(n)))
    return model([make_node("Sin", ["x"], [name]), make_node("Cos", [name], ["y"])])


@grows
def elements_of_an_attribute(n: int) -> ModelProto:
    constant = make_node("Constant", [], ["k"], value_floats=[float(i) for i in range(n)])
    return model([constant, make_node("Add", ["x", "k"], ["y"])], [ANY], inputs=[port("x", [1, 1])])


@grows
def functions_and_calls(n: int) -> ModelProto:
    imports = [helper.make_opsetid("", 17)]
    body = [make_node("Sin", ["a"], ["b"])]
    functions = [helper.make_function("local", f"F{i}", ["a"], ["b"], body, imports) for i in range(n)]
    return model(chain(n, lambda i, a, b: make_node(f"F{i}", [a], [b], domain="local")), functions=functions)


@grows
def conditional_branches(n: int) -> ModelProto:
    def branch(operator: str) -> object:
        return helper.make_graph([make_node(operator, ["x"], ["z"])], "branch", [], [port("z")])

    nodes = [make_node("ReduceMax", ["x"], ["r"], keepdims=0), make_node("Greater", ["r", "k"], ["c"])]
    both = {"then_branch": branch("Sin"), "else_branch": branch("Cos")}
    nodes += [make_node("If", ["c"], [f"t{i}"], **both) for i in range(n)]
    nodes.append(make_node("Sum", [f"t{i}" for i in range(n)], ["y"]))
    return model(nodes, constants={"k": np.array(0, np.float32)})


@grows
def iterations_of_an_unrolled_loop(n: int) -> ModelProto:
    ports = [port("c", [], TensorProto.BOOL), port("v")]
    results = [port("d", [], TensorProto.BOOL), port("w")]
    nodes = [make_node("Identity", ["c"], ["d"]), make_node("Sin", ["v"], ["w"])]
    body = helper.make_graph(nodes, "body", [port("i", [], TensorProto.INT64), *ports], results)
    loop = make_node("Loop", ["n", "true", "x"], ["y"], body=body)
    return model([loop], constants={"n": np.array(n, np.int64), "true": np.array(True)})


@grows
def shape_arithmetic(n: int) -> ModelProto:
    nodes = [make_node("Shape", ["x"], ["s0"])]
    nodes += [make_node("Mul", [f"s{i}", "one"], [f"s{i + 1}"]) for i in range(n)]
    nodes.append(make_node("Reshape", ["x", f"s{n}"], ["y"]))
    return model(nodes, [ANY], {"one": np.array([1])}, inputs=[port("x", ["b", 4])])


@grows
def symbolic_extents(n: int) -> ModelProto:
    nodes = [make_node("Sin", [f"x{i}"], [f"y{i}"]) for i in range(n)]
    shapes = [(f"b{i}", 4) for i in range(n)]
    return model(
        nodes,
        [port(f"y{i}", shape) for i, shape in enumerate(shapes)],
        inputs=[port(f"x{i}", shape) for i, shape in enumerate(shapes)],
    )


@grows
def data_dependent_extents(n: int) -> ModelProto:
    nodes = []
    for i in range(n):
        nodes += [make_node("Add", ["x", f"c{i}"], [f"q{i}"]), make_node("NonZero", [f"q{i}"], [f"y{i}"])]
    results = [port(f"y{i}", None, TensorProto.INT64) for i in range(n)]
    return model(nodes, results, {f"c{i}": values(4) * i for i in range(n)})


@grows
def tensors_of_a_sequence(n: int) -> ModelProto:
    nodes = [make_node("SequenceConstruct", ["x"] * n, ["s"]), make_node("ConcatFromSequence", ["s"], ["y"], axis=1)]
    return model(nodes, [ANY])


@grows
def decomposed_activations(n: int) -> ModelProto:
    nodes = []
    for i in range(n):
        x, y = f"t{i - 1}" if i else "x", f"t{i}" if i < n - 1 else "y"
        nodes += [
            make_node("Div", [x, "root"], [f"a{i}"]),
            make_node("Erf", [f"a{i}"], [f"b{i}"]),
            make_node("Add", [f"b{i}", "one"], [f"c{i}"]),
            make_node("Mul", [x, f"c{i}"], [f"d{i}"]),
            make_node("Mul", [f"d{i}", "half"], [y]),
        ]
    scalars = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    return model(nodes, constants={name: np.array(value, np.float32) for name, value in scalars.items()})


@grows
def attention_blocks(n: int) -> ModelProto:
    nodes, x = [], "x"
    for i in range(n):
        nodes += [
            make_node("MatMul", [x, "w"], [f"q{i}"]),
            make_node("Transpose", [f"q{i}"], [f"k{i}"], perm=[1, 0]),
            make_node("MatMul", [f"q{i}", f"k{i}"], [f"s{i}"]),
            make_node("Softmax", [f"s{i}"], [f"a{i}"], axis=-1),
            make_node("MatMul", [f"a{i}", f"q{i}"], [f"o{i}"]),
            make_node("Add", [f"o{i}", x], [f"r{i}"]),
        ]
        x = f"r{i}"
    return model(nodes, [port(x, [4, 4])], {"w": values(4, 4)}, inputs=[port("x", [4, 4])])


@grows
def convolutions_with_residuals(n: int) -> ModelProto:
    image = [1, 4, 8, 8]
    link = alternating(lambda _, a, b: make_node("Conv", [a, "w"], [b], pads=[1] * 4), with_x("Add"))
    return model(chain(n, link), [port("y", image)], {"w": values(4, 4, 3, 3)}, inputs=[port("x", image)])
