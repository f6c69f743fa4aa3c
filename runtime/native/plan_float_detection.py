"""SSD detection output: box decoding and non-maximum suppression."""

from __future__ import annotations

import numpy as np

from tpuconvert.runtime.native.builder import Builder, Group
from tpuconvert.runtime.native.groups import Site, ends_with
from tpuconvert.runtime.native.storage import row_major
from tpuconvert.schema.graph import Node
from tpuconvert.schema.ops.host_detection import DetectionOutput
from tpuconvert.schema.types import F32, I32


@ends_with(
    "detection_output",
    kernels=("detection_output",),
    dtypes="FLOAT32",
    conditions="counts fit 32 bits",
)
def detection_output(node: Node, site: Site) -> Group | None:
    """Match detection_output."""
    op, y = node.op, node.outputs[0]
    assert isinstance(op, DetectionOutput)
    operands = [value for value in node.inputs if value is not None]
    if any(value.dtype is not F32 or 0 in value.type.static_shape for value in (*operands, y)):
        return None
    if not all(I32.holds(number) for number in (op.background_label_id, op.nms_top_k, op.keep_top_k)):
        return None

    def emit(builder: Builder) -> None:
        loc, conf, prior = (builder.read(value, row_major(value.rank)) for value in operands)
        target = builder.write(y)
        spec = builder.native.DetectionSpec(
            loc=builder.place(loc),
            conf=builder.place(conf),
            prior=builder.place(prior),
            output=builder.place(target),
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
        builder.step("detection_output", spec, (loc, conf, prior), (target,))

    return Group((node,), emit)
