"""Constants of a graph that are views of mapped files."""

from __future__ import annotations

from tpuconvert.schema.graph.control_flow import all_graphs
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.system.mapped_pages import MappedFile, copy_if_mapped, large_file


def large_files(graph: Graph) -> list[MappedFile]:
    """Return the large mapped files, which stay mapped, that large constants of a graph are views of."""
    values = (value for each in all_graphs(graph) for value in each.values)
    arrays = (array for value in values for array in (value.data, value.stored) if array is not None)
    files = (large_file(array) for array in arrays)
    return list({id(file): file for file in files if file is not None}.values())


def release_constants(graph: Graph) -> None:
    """Free the memory of constants in mapped files, see ``Value.release_memory``."""
    for each in all_graphs(graph):
        for value in each.values:
            value.release_memory()


def own_constants(graph: Graph) -> None:
    """Copy the constants that are views of a mapped file, so that the file may be overwritten while they are in use.

    Constants in large files stay views.
    """
    for value in (value for each in all_graphs(graph) for value in each.values):
        if value.data is not None:
            value.data = copy_if_mapped(value.data)
        if value.stored is not None:
            value.stored = copy_if_mapped(value.stored)
