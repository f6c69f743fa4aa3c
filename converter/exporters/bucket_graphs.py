"""Graphs of a model for its shape buckets, which exporters need because they cannot express symbolic extents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.graph_copy import copy_graph
from tpuconvert.schema.graph.shape_buckets import Bucket, buckets_of, extents_of


def graph_of_bucket(graph: Graph, bucket: Bucket) -> Graph:
    """Return a copy of a graph with the numbers of a bucket, also in the shapes of inputs and outputs."""
    copy = copy_graph(graph, extents_of(bucket, graph.input_ports))
    for ports, values in ((copy.input_ports, copy.inputs), (copy.output_ports, copy.outputs)):
        for index, (port, value) in enumerate(zip(ports, values, strict=True)):
            if any(isinstance(extent, str) for extent in port.shape):
                ports[index] = replace(port, shape=value.shape)
    return copy


def graphs_of_buckets(graph: Graph, metadata: Mapping[str, Any]) -> list[Graph]:
    """Return one graph for each bucket in the metadata of a model; the graph itself if there are none."""
    return [graph_of_bucket(graph, bucket) for bucket in buckets_of(metadata)] or [graph]
