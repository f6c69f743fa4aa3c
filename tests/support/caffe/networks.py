"""Caffe files written by tests, and an interpreter of the imported graph."""

from pathlib import Path

import numpy as np

from tpuconvert.frontends import caffe
from tpuconvert.frontends.caffe.file.messages import new_message
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array

INPUT = 'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}\n'


def with_input(shape: tuple[int, ...], text: str) -> str:
    """A network with the input ``x`` of a shape, followed by ``text``."""
    return INPUT.format(dims=" ".join(f"dim: {extent}" for extent in shape)) + text


def layer(type_: str, parameters: str = "", bottoms: str = "x", tops: str = "y", name: str = "layer") -> str:
    """One layer; bottoms and tops are names with blanks between them."""
    connections = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(f' top: "{t}"' for t in tops.split())
    return f'layer {{ name: "{name}" type: "{type_}"{connections} {parameters} }}\n'


def write_text(folder: Path, text: str, name: str = "net.prototxt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def weights_message(blobs: dict[str, list[Array]]):
    """A NetParameter with the blobs of each layer."""
    net = new_message("NetParameter")
    net.name = "net"
    for layer_name, arrays in blobs.items():
        message = net.layer.add(name=layer_name, type="Any")
        for array in map(np.asarray, arrays):
            blob = message.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.data.extend(np.asarray(array, np.float32).reshape(-1).tolist())
    return net


def write_weights(folder: Path, blobs: dict[str, list[Array]], name: str = "net.caffemodel") -> Path:
    path = folder / name
    path.write_bytes(weights_message(blobs).SerializeToString())
    return path


def load_text(folder: Path, text: str, blobs: dict[str, list[Array]] | None = None, **options) -> Graph:
    weights = None if blobs is None else write_weights(folder, blobs)
    graph = caffe.load(write_text(folder, text), weights, **options)
    graph.validate()
    return graph


def run(graph: Graph, *feeds: Array) -> dict[str, Array]:
    """Execute the references of all nodes; return the outputs by port name."""
    assert len(feeds) == len(graph.inputs)
    known = {id(value): value.array for value in graph.values if value.is_constant}
    known.update((id(value), np.asarray(feed, np.float32)) for value, feed in zip(graph.inputs, feeds, strict=True))
    for node in graph.sorted_nodes():
        results = node.op.evaluate(*(None if value is None else known[id(value)] for value in node.inputs))
        for value, result in zip(node.outputs, results, strict=True):
            assert result.shape == value.shape, f"{node} gave {result.shape}"
            known[id(value)] = result
    pairs = zip(graph.outputs, graph.output_ports, strict=True)
    return {port.name: known[id(value)].reshape(port.shape) for value, port in pairs}


def run_layer(
    folder: Path, type_: str, parameters: str, *feeds: Array, blobs: list[Array] | None = None, tops: str = "y"
) -> list[Array]:
    """Results of one layer. Its bottoms are the feeds."""
    names = [f"x{index}" for index in range(len(feeds))]
    text = "".join(
        with_input(feed.shape, "").replace('"x"', f'"{name}"') for name, feed in zip(names, feeds, strict=True)
    )
    text += layer(type_, parameters, " ".join(names), tops)
    given = None if blobs is None else {"layer": blobs}
    return list(run(load_text(folder, text, given), *feeds).values())
