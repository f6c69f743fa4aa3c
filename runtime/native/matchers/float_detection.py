"""SSD detection output: box decoding and non-maximum suppression."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.storage import row_major
from tpuconvert.runtime.native.matchers.matcher import Site, computes, operands_of
from tpuconvert.schema.graph.graph import Node
from tpuconvert.schema.ops.host.detection import DetectionOutput
from tpuconvert.schema.types import F32, I32


def _counts_fit(op: DetectionOutput, node: Node, site: Site) -> bool:
    return all(I32.holds(number) for number in (op.background_label_id, op.nms_top_k, op.keep_top_k))


@computes("detection_output", dtypes=(F32,), conditions="counts fit 32 bits", when=_counts_fit)
def detection_output(builder: Builder, node: Node, op: DetectionOutput) -> None:
    """Box decoding and non-maximum suppression."""
    loc, conf, prior = (builder.read(value, row_major(value.rank)) for value in operands_of(node))
    builder.kernel_step(
        "detection_output",
        "DetectionSpec",
        {"loc": loc, "conf": conf, "prior": prior},
        {"output": builder.write(node.output)},
        images=loc.shape[0],
        priors=prior.shape[2] // 4,
        classes=op.num_classes,
        shares_location=op.share_location,
        has_variances=not op.variance_encoded_in_target,
        background=op.background_label_id,
        most_per_class=op.nms_top_k,
        most_per_image=op.keep_top_k,
        code=int(op.code_type),
        least_score=float(np.float32(op.confidence_threshold)),
        most_overlap=float(np.float32(op.nms_threshold)),
        eta=float(np.float32(op.nms_eta)),
    )
