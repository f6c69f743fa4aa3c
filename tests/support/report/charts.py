"""Descriptions of models for tests of charts, and access to the elements of a chart."""

import xml.etree.ElementTree as ET
from typing import Any


def layer(index: int, name: str, op: str = "conv") -> dict[str, Any]:
    """Return the description of a node with one result."""
    return {"index": index, "name": name, "op": op, "outputs": [{"name": name}]}


def compared(name: str, sqnr: float | None, added: float | None = 0.0, **more: Any) -> dict[str, Any]:
    """Return the comparison of a tensor with the source."""
    entry = {"name": name, "op": "conv", "sqnr_db": sqnr, "noise_added": added, "not_finite": 0, "max_absolute": 1.0}
    return entry | more


def description(names: list[str], **more: Any) -> dict[str, Any]:
    """Return the description of a chain of nodes."""
    return {"nodes": len(names), "layers": [layer(index, name) for index, name in enumerate(names)], **more}


def parse(svg: str) -> ET.Element:
    """Parse a chart. It is well-formed XML with a title."""
    root = ET.fromstring(svg)
    assert root.tag == "svg" and root.find("title") is not None and root.get("role") == "img"
    return root


def marks(root: ET.Element, tag: str, kind: str) -> list[ET.Element]:
    """Return the elements with a tag and a class, in the order of the chart."""
    return [each for each in root.iter(tag) if kind in (each.get("class") or "").split()]


def numbers(element: ET.Element, *names: str) -> list[float]:
    """Return attributes of an element as numbers."""
    return [float(element.get(name, "nan")) for name in names]


def texts(root: ET.Element) -> list[str]:
    """Return the contents of all text elements."""
    return ["".join(each.itertext()) for each in root.iter("text")]
