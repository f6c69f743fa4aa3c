"""Quantization scales as TFLite requires them: equal for operands and results of some operators, fixed for sigmoid."""

from __future__ import annotations

from dataclasses import dataclass

from tools.bench.qdq import QdqNetwork

_SHARING = ("Concat", "MaxPool", "Resize", "Reshape", "Transpose", "Flatten")
"""Operators whose operands and result share a scale."""


@dataclass(frozen=True)
class Range:
    """Scale and zero point of an INT8 value."""

    scale: float
    zero_point: int

    @property
    def low(self) -> float:
        """Smallest dequantized value."""
        return (-128 - self.zero_point) * self.scale


SIGMOID = Range(1 / 256, -128)


def ranges(network: QdqNetwork) -> dict[str, Range]:
    """Return scale and zero point of every value that is not a constant."""
    range_of: dict[str, Range] = {}
    for group, members in _groups(network).items():
        if any(member in _sigmoids(network) for member in members):
            range_of |= dict.fromkeys(members, SIGMOID)
            continue
        limits = []
        for member in members:
            stored = network.stored.get(member)
            if stored is not None:
                scale = float(stored.scale[0])
                limits.append(((0 - stored.zero_point) * scale, (255 - stored.zero_point) * scale))
        if not limits:
            raise ValueError(f"'{group}' is not quantized")
        low, high = min(0.0, *(each[0] for each in limits)), max(0.0, *(each[1] for each in limits))
        scale = (high - low) / 255
        range_of |= dict.fromkeys(members, Range(scale, round(-128 - low / scale)))
    return range_of


def _sigmoids(network: QdqNetwork) -> set[str]:
    return {node.outputs[0] for node in network.nodes if node.kind == "Sigmoid"}


def _groups(network: QdqNetwork) -> dict[str, list[str]]:
    """Return the sets of values that must share a scale, by one member of the set."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for name in network.inputs:
        find(name)
    for node in network.nodes:
        for output in node.outputs:
            find(output)
        if node.kind in _SHARING:
            for operand in node.inputs:
                if operand and operand not in network.constants:
                    leader[find(operand)] = find(node.outputs[0])
    groups: dict[str, list[str]] = {}
    for name in list(leader):
        groups.setdefault(find(name), []).append(name)
    return groups
