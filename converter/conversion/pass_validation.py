"""Validation of the optimizer's passes on random and user-provided samples."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tpuconvert.optimizer.validation import Validator
from tpuconvert.samples.calibration_data import CalibrationSource, load_feeds
from tpuconvert.samples.random_samples import random_feeds
from tpuconvert.schema.graph.graph import Graph

if TYPE_CHECKING:
    from tpuconvert.conversion.options.options import Options

RANDOM_SAMPLES = 2
USER_SAMPLES = 4
"""Largest number of user samples that run before and after every pass."""


def create_validator(graph: Graph, options: Options, samples: CalibrationSource | None) -> Validator:
    """Create the observer that runs the graph before and after every pass.

    Raises:
        UsageError: the samples do not fit, or an input with dynamic dimensions has no samples.
    """
    source = () if samples is None else load_feeds(samples, graph.input_ports, options.preprocess)
    feeds = list(islice(source, USER_SAMPLES))
    is_open = any(isinstance(extent, str) for port in graph.input_ports for extent in port.shape)
    if not (feeds and is_open):
        feeds = [*random_feeds(graph.input_ports, RANDOM_SAMPLES), *feeds]
    return Validator(feeds, chip=options.chip)
