"""Samples of a calibration for the inputs of a graph."""

from __future__ import annotations

from tpuconvert.conversion.options.options import Options
from tpuconvert.samples.calibration_data import CalibrationSource, FeedSource, load_feeds
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.graph.graph import Graph

CALIBRATION_HINT = "--calibration with a folder of images, an .npz or .npy file; 50 to 200 samples are usual"


def calibration_feeds(graph: Graph, options: Options, calibration: CalibrationSource | None) -> FeedSource:
    """Return the samples for a graph's inputs, in an order that depends on their content only.

    Raises:
        UsageError: there are no samples, or they do not fit.

    """
    if calibration is None:
        raise UsageError("quantization needs samples to find ranges with", hint=CALIBRATION_HINT)
    feeds = load_feeds(calibration, graph.input_ports, options.preprocess)
    return feeds.sorted_by_content()
