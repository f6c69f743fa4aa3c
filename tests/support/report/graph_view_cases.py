"""Graphs for the tests of the graph view: names of the nodes, edges, and number of nodes, inputs and outputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Case:
    """A graph under construction. Inputs and outputs are added last."""

    names: list[str] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    ports: int = 0

    @property
    def vertices(self) -> int:
        return len(self.names) + self.ports

    def node(self, name: str, *producers: int) -> int:
        for producer in producers:
            self.edges += (producer, len(self.names))
        self.names.append(name)
        return len(self.names) - 1

    def with_ports(self) -> "Case":
        """Add an input for each node without producers, and an output for each node without users."""
        producers, users = set(self.edges[::2]), set(self.edges[1::2])
        for v in range(len(self.names)):
            if v not in users:
                self.edges += (self.vertices, v)
                self.ports += 1
        for v in range(len(self.names)):
            if v not in producers:
                self.edges += (v, self.vertices)
                self.ports += 1
        return self


def chain(count: int, name: Callable[[int], str] = "node{}".format) -> Case:
    case = Case()
    for i in range(count):
        case.node(name(i), *range(i - 1, i) if i else ())
    return case.with_ports()


def residual(blocks: int, *, scopes: bool) -> Case:
    case = Case()
    x = case.node("stem/conv" if scopes else "conv0")
    for i in range(blocks):
        prefix = f"layer{i // 3}/{i % 3}/" if scopes else f"n{i}_"
        y = case.node(prefix + "conv1", x)
        y = case.node(prefix + "relu1", y)
        y = case.node(prefix + "conv2", y)
        y = case.node(prefix + "add", x, y)
        x = case.node(prefix + "relu2", y)
    case.node("head/fc" if scopes else "fc", x)
    return case.with_ports()


def inception(modules: int) -> Case:
    case = Case()
    x = case.node("conv")
    for i in range(modules):
        ends = []
        for branch in range(4):
            y = x
            for step in range(branch + 1):
                y = case.node(f"m{i}_b{branch}_{step}", y)
            ends.append(y)
        x = case.node(f"m{i}_concat", *ends)
    return case.with_ports()


def u_net(depth: int) -> Case:
    case = Case()
    x = case.node("conv")
    skips = []
    for i in range(depth):
        x = case.node(f"down{i}_conv2", case.node(f"down{i}_conv1", x))
        skips.append(x)
        x = case.node(f"down{i}_pool", x)
    for i, skip in reversed(list(enumerate(skips))):
        x = case.node(f"up{i}_concat", case.node(f"up{i}_deconv", x), skip)
        x = case.node(f"up{i}_conv", x)
    return case.with_ports()


def detector(levels: int) -> Case:
    case = Case()
    x = case.node("conv")
    features = []
    for level in range(levels):
        for i in range(6):
            x = case.node(f"stage{level}_conv{i}", x)
        features.append(x)
    for level, feature in enumerate(features):
        for head in ("box", "score", "points"):
            y = case.node(f"{head}{level}_conv", feature)
            y = case.node(f"{head}{level}_permute", y)
            case.node(f"{head}{level}_reshape", y)
    return case.with_ports()


def transformer(layers: int) -> Case:
    case = Case()
    x = case.node("embed/add")
    for i in range(layers):
        scope = f"model/layers.{i}/"
        norm = case.node(scope + "norm1", x)
        heads = []
        for name in "qkv":
            y = norm
            for step in ("matmul", "add", "reshape", "transpose"):
                y = case.node(f"{scope}attention/{name}/{step}", y)
            heads.append(y)
        y = case.node(scope + "attention/scores", *heads[:2])
        y = case.node(scope + "attention/softmax", y)
        y = case.node(scope + "attention/values", y, heads[2])
        y = case.node(scope + "attention/out", y)
        x = case.node(scope + "add1", x, y)
        y = case.node(scope + "norm2", x)
        for step in ("fc1", "gelu", "fc2"):
            y = case.node(f"{scope}mlp/{step}", y)
        x = case.node(scope + "add2", x, y)
    return case.with_ports()


def decoder(layers: int) -> Case:
    """A transformer with a mask for all layers, and with keys and values of earlier tokens as inputs and outputs."""
    case = Case()
    x = case.node("embed/gather")
    mask = case.node("mask/expand")
    for i in range(layers):
        scope = f"model/layers.{i}/"
        q, k, v = (case.node(f"{scope}attention/{name}", x) for name in "qkv")
        k = case.node(scope + "attention/concat_k", k, case.node(scope + "attention/past_k"))
        v = case.node(scope + "attention/concat_v", v, case.node(scope + "attention/past_v"))
        y = case.node(scope + "attention/scores", q, k)
        y = case.node(scope + "attention/add_mask", y, mask)
        y = case.node(scope + "attention/softmax", y)
        y = case.node(scope + "attention/values", y, v)
        case.node(scope + "present_k", k)
        case.node(scope + "present_v", v)
        x = case.node(scope + "add", x, y)
    case.node("head/matmul", x)
    return case.with_ports()


def fan_in(inputs: int) -> Case:
    case = Case()
    case.node("concat", *(case.node(f"slice{i}") for i in range(inputs)))
    return case.with_ports()


def components(count: int) -> Case:
    case = Case()
    for i in range(count):
        x = case.node(f"part{i}_a")
        case.node(f"part{i}_d", case.node(f"part{i}_b", x), case.node(f"part{i}_c", x))
    return case.with_ports()


def random_graph(count: int, seed: int, reach: float = 5.0) -> Case:
    """Random edges to nodes that are about ``reach`` earlier."""
    generator = random.Random(seed)
    case = Case()
    for v in range(count):
        producers = [max(0, v - 1 - int(generator.expovariate(1 / reach))) for _ in range(generator.randint(0, 3))]
        case.node(f"s{generator.randint(0, 5)}/n{v}", *(producers if v else ()))
    return case.with_ports()


CASES: dict[str, Callable[[], Case]] = {
    "empty": Case,
    "one node": lambda: chain(1),
    "five nodes": lambda: chain(5),
    "chain": lambda: chain(10_000),
    "residual, scopes": lambda: residual(18, scopes=True),
    "residual, no scopes": lambda: residual(18, scopes=False),
    "inception": lambda: inception(8),
    "u-net": lambda: u_net(5),
    "detector": lambda: detector(3),
    "transformer": lambda: transformer(12),
    "decoder": lambda: decoder(12),
    "200 inputs": lambda: fan_in(200),
    "components": lambda: components(7),
    "random": lambda: random_graph(400, seed=1),
    "random, far": lambda: random_graph(400, seed=2, reach=200),
}
