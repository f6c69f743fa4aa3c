"""Define the operators ``nms`` and ``roi_align`` of torchvision where its compiled extension cannot be loaded.

The wheel on PyPI is linked with CUDA; together with a PyTorch for CPUs only, importing torchvision would fail. Import
this module first.
"""

import importlib.util
import inspect
import sys
from pathlib import Path

import torch
from torch import Tensor

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)


def has_extension() -> bool:
    """Return True if the compiled extension of torchvision can be loaded."""
    found = importlib.util.find_spec("torchvision")
    folders = found.submodule_search_locations if found else None
    try:
        for path in Path((folders or ["."])[0]).glob("_C*.so"):
            torch.ops.load_library(str(path))
            return True
    except OSError:
        pass
    return False


def has_operators() -> bool:
    """Return True, in place of torchvision's function; TorchScript compiles it."""
    return True


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return the indices of boxes that remain after suppression, by descending score."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left = scores.argsort(descending=True, stable=True)
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low = torch.maximum(boxes[left, :2], boxes[best, :2])
        high = torch.minimum(boxes[left, 2:], boxes[best, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        left = left[shared <= threshold * (areas[left] + areas[best] - shared)]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.int64)


if not has_extension():
    _library = torch.library.Library("torchvision", "DEF")
    for _schema in SCHEMAS:
        _library.define(_schema)
    _library.impl("nms", nms, "CPU")
    from torchvision import _meta_registrations, extension  # after the definitions, which it extends
    from torchvision.ops.roi_align import _roi_align

    extension._has_ops = has_operators
    vars(sys.modules[_roi_align.__module__])["_has_ops"] = has_operators  # its own reference to the function
    _library.impl("roi_align", inspect.unwrap(_roi_align), "CPU")  # without torch.compile, which tracing rejects
    _library.impl("roi_align", _meta_registrations.meta_roi_align, "Meta")
