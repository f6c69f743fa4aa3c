"""The copies that QuantizeLinear makes, because what it reads may be read unrounded too."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph


def drop_copies(g: Graph) -> None:
    """Remove the copies that QuantizeLinear made where nobody else reads the value in front of them.

    The annotation then belongs to that value itself; several copies with the same annotation are one.
    """
    for node in g.nodes:
        if node.op.name != "copy" or node not in g:
            continue
        source, result = node.inputs[0], node.output
        if source is None or source.is_constant or result.quant is None or g.is_output(source):
            continue
        copies = [user for user in source.users if user.op.name == "copy" and user.output.quant == result.quant]
        if len(copies) != len(source.uses) or source.quant not in (None, result.quant):
            continue
        source.quant = result.quant
        for copy in copies:
            g.replace_uses(copy.output, source)
            g.remove(copy)
