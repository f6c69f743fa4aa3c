"""Which refusals are documented limits, and which come from a form or a table of this project."""

from __future__ import annotations

import re

_EXTENTS = re.compile(
    r"^shape not known: .*(has|have) to be (a number|numbers)|of a tensor with symbolic extents|\bs0_0\b"
)
DOCUMENTED: dict[str, str] = {
    _EXTENTS.pattern: "docs/reference/onnx.md, Dynamic dimensions: some operators need a static extent",
    r"^not finite: .* (-?infinity|NaN)": "docs/reference/errors/TC3108.md: constants that are not finite",
    r"index_select: index -\d+ is outside": "docs/reference/onnx.md, Data-dependent extents",
    r"^invalid node: (Pad|Resize): .*(leave no|would have 0) elements": "docs/reference/onnx.md, Dynamic dimensions",
    r"^RunError: resize_\w+ failed .*leave no elements": "docs/reference/onnx.md, Dynamic dimensions",
    r"Concat: its inputs have different types or scales": "docs/reference/onnx.md, Quantized models: Concat",
    r"^RunError: slice_axis failed .*leaves none of": "docs/reference/onnx.md, Dynamic dimensions: a slice",
    r"^invalid node: \w+: a window of \d+ elements over \d+": "no window fits; ONNX Runtime takes one beyond the end",
    r"auto_pad=SAME_\w+ with the stride \d+ over windows of": "negative pads; ONNX Runtime starts within the image",
    r"ConvTranspose: a computed weight with three spatial axes": "docs/reference/supported-operators.md, ConvTranspose",
    r"a scan output of no iteration has symbolic extents": "docs/reference/onnx.md, Control flow",
}
"""Pattern of a refusal -> page that documents the limit."""

_OWN = re.compile(r"not on this chip|no exact form")


def is_documented(reason: str) -> bool:
    return any(re.search(pattern, reason) for pattern in DOCUMENTED)


def is_own_form(reason: str) -> bool:
    return _OWN.search(reason) is not None


def is_about_extents(reason: str) -> bool:
    """Return True if the graph converts once its symbolic axes are numbers."""
    return _EXTENTS.search(reason) is not None
