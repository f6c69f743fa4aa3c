"""Per-channel scales of the 8-bit forms of tensors with 16 bits, at no cost on the chip.

A tensor with 16 bits has one scale. The nodes that take 8 bits read a form of it that is requantized, with a multiplier
per channel if they can compensate for the ratios of the scales (``channel_scales``). This is how the result of a
non-linear operator gets scales per channel: its table has 16 bits and one scale, and the depthwise convolution that
reads it has a scale for each of its channels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tpuconvert.optimizer.quantize.lowering.wide_plan import WidePlan
from tpuconvert.optimizer.quantize.ranges.ranges import Range
from tpuconvert.optimizer.quantize.scales.channel_scales import (
    can_absorb_scales,
    choose_scales,
    has_channels,
    per_channel,
)
from tpuconvert.schema.graph.graph import Graph, Node, Value
from tpuconvert.schema.types import QuantParams


def scale_narrow_forms(
    graph: Graph,
    ranges: Mapping[str, Range],
    floats: Collection[str],
    plan: WidePlan,
    narrow: Mapping[str, QuantParams],
) -> dict[str, QuantParams]:
    """Return the parameters of the 8-bit forms with a scale per channel where all nodes that read them allow it.

    Args:
        graph: annotated float graph.
        ranges: calibrated ranges of its values, by name.
        floats: names of the nodes that stay float.
        plan: the values with 16 bits, and the nodes that take them.
        narrow: parameters of the 8-bit forms, by name.
    """
    readers: dict[Value, list[Node]] = {}
    for node in graph.sorted_nodes():
        for value in node.outputs:
            if value in plan.values:
                readers[value] = [user for user in value.users if user.name not in floats and not plan.reads(user)]
    narrow_values = [
        value
        for value, users in readers.items()
        if users and has_channels(value, narrow[value.name], ranges) and _can_all_absorb(value, users)
    ]
    wide = {value: value.quant for value in narrow_values}
    for value in narrow_values:
        value.quant = narrow[value.name]
    chosen = choose_scales(narrow_values, set(narrow_values), ranges, readers=readers)
    for value, quant in wide.items():
        value.quant = quant
    channel_params = {
        value.name: per_channel(scales.tolist(), narrow[value.name].dtype) for value, scales in chosen.items()
    }
    return {**narrow, **{name: quant for name, quant in channel_params.items() if len(set(quant.scale)) > 1}}


def _can_all_absorb(value: Value, users: Collection[Node]) -> bool:
    return all(can_absorb_scales(user, index, value) for user, index in value.uses if user in users)
