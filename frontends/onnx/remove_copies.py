"""Remove copies that QuantizeLinear adds because its input may have users that need the unrounded values."""

from __future__ import annotations

from tpuconvert.schema.graph import Graph


def drop_copies(g: Graph) -> None:
    """Remove the copies of a value whose users are all copies with the same annotation.

    The value gets the annotation.
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
