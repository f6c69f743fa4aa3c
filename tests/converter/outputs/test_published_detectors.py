"""Heads of published detectors: outputs with known objects are recognized and decoded, in float and in INT8."""

from __future__ import annotations

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.export_graphs import EXPORTS, FACES
from tests.support.networks.planted_heads import LAYOUTS, OBJECTS, SIZE, Layout, Outputs
from tests.support.sampled import sampled
from tpuconvert.outputs.drawing import dequantize_outputs
from tpuconvert.outputs.head import DecodedImage, DetectorHead, recognize_head
from tpuconvert.samples.preprocess import Preprocess
from tpuconvert.schema.arithmetic.boxes import Detections, overlaps
from tpuconvert.schema.types import Array

RULE = Preprocess(size=SIZE)
IMAGE = DecodedImage(RULE, (SIZE[0] * 2, SIZE[1] * 2))
"""An image of twice the extents of the input."""


def decode(outputs: Outputs) -> tuple[str, Detections]:
    head = recognize_head(outputs, RULE)
    assert isinstance(head, DetectorHead)
    found = head.decode(outputs, IMAGE)
    return head.name, found.take(np.argsort(-found.scores, kind="stable"))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_planted_objects_are_found(layout: Layout) -> None:
    name, found = decode(layout.outputs())
    assert name == layout.head
    np.testing.assert_allclose(found.boxes, [[2 * edge for edge in item.box] for item in OBJECTS], atol=1e-3)
    np.testing.assert_allclose(found.scores, [item.score for item in OBJECTS], atol=1e-5)
    assert found.classes.tolist() == [item.kind if layout.has_classes else 0 for item in OBJECTS]
    if not layout.points:
        assert found.points is None
        return
    points = [item.points(layout.points) for item in OBJECTS]
    np.testing.assert_allclose(found.points, 2 * np.array(points), atol=1e-3)


def nearby(feed: dict[str, Array], count: int) -> list[dict[str, Array]]:
    """Return inputs that differ from a feed by little, for the calibration."""
    rng = np.random.default_rng(0)
    return [
        {name: (array * rng.uniform(0.95, 1.02)).astype(np.float32) for name, array in feed.items()}
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", sampled(EXPORTS, every=2))
def test_nodes_of_exports_in_float_and_in_int8(name: str) -> None:
    """The float network has exactly the planted objects; boxes of the INT8 network overlap them by more than 0.7."""
    export = EXPORTS[name]()
    network = export.net.model(*export.outputs)
    kinds = [0 if name in FACES else item.kind for item in OBJECTS]
    for options, tolerance in (({}, 0.1), ({"quantize": "int8", "calibration": nearby(export.feed, 4)}, None)):
        model = tc.convert(network, **options)
        assert ("INT8" in str(model)) is (tolerance is None)
        with tc.Session(model, threads=1) as session:
            found = decode(dequantize_outputs(session.run(export.feed), model.graph.output_ports))
        assert found[0] == name
        boxes = np.array([[2 * edge for edge in item.box] for item in OBJECTS])
        shared = overlaps(boxes, found[1].boxes)
        best = shared.argmax(axis=1)
        assert len(found[1].scores) == len(OBJECTS) == len(set(best.tolist()))
        assert found[1].classes[best].tolist() == kinds
        assert (shared.max(axis=1) > (0.7 if tolerance is None else 0.99)).all()
        if tolerance is not None:
            np.testing.assert_allclose(found[1].boxes[best], boxes, atol=tolerance)
