"""Jobs of the benchmark: one model file per network and engine, or the reason why there is no file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tools.bench.engine_process import in_short
from tools.bench.engines import Job
from tools.bench.networks import NETWORKS, Network, write_network, write_samples
from tools.bench.prepare import (
    Feed,
    convert_mnn,
    convert_ours,
    quantize_onnxruntime,
    quantize_openvino,
    ready,
    write_feed,
)
from tools.bench.tflite_network import UnsupportedNetworkError, write_tflite

OURS = "tpuconvert"


@dataclass(frozen=True)
class Model:
    """A network in one arithmetic with its jobs. The first job is tpuconvert; without its file there are no jobs."""

    network: str
    arithmetic: str
    jobs: tuple[Job, ...]
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Maker:
    """Engine with its label and the name of its model file."""

    label: str
    engine: str
    file: str
    make: Callable[[Path], None]


def build(network: str, arithmetic: str, folder: Path, feed: Path, makers: list[Maker], backend: str) -> Model:
    """Create the files. Record the reason for an engine without a file."""
    jobs, missing = [], []
    for maker in makers:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # NNCF prints its progress on stdout, which is for the page
                path = ready(folder / maker.file, maker.make)
        except ImportError as error:
            missing.append((maker.label, f"not installed ({error})"))
        except UnsupportedNetworkError as error:
            missing.append((maker.label, f"the network cannot be written: {error}"))
        except Exception as error:  # any exception becomes a row of the table
            missing.append((maker.label, in_short(error)))
        else:
            jobs.append(Job(maker.engine, maker.label, path, feed, backend=backend))
    has_ours = any(job.engine == OURS for job in jobs)
    return Model(network, arithmetic, tuple(jobs) if has_ours else (), tuple(missing))


def int8_model(name: str, folder: Path, backend: str) -> Model:
    """A network of the benchmark in INT8."""
    network, feeds = NETWORKS[name], _feeds(NETWORKS[name], folder)
    source, feed = _source(network, folder), _feed(network, folder)
    quantized = folder / f"{name}.ort.onnx"
    makers = [
        Maker(OURS, OURS, f"{name}.int8.tpum", lambda path: convert_ours(source, path, feeds)),
        Maker("ONNX Runtime", "onnxruntime", quantized.name, lambda path: quantize_onnxruntime(source, path, feeds)),
        Maker(
            "OpenVINO",
            "openvino",
            f"{name}.openvino.xml",
            lambda path: quantize_openvino(source, path, feeds, is_transformer=network.is_transformer),
        ),
        Maker("LiteRT", "litert", f"{name}.tflite", lambda path: write_tflite(quantized, path)),
    ]
    return build(name, "INT8", folder, feed, makers, backend)


def float_model(name: str, folder: Path, backend: str) -> Model:
    """A network of the benchmark in float32."""
    network = NETWORKS[name]
    source, feed = _source(network, folder), _feed(network, folder)
    makers = [
        Maker(OURS, OURS, f"{name}.float32.tpum", lambda path: convert_ours(source, path, None)),
        Maker("ONNX Runtime", "onnxruntime", source.name, lambda path: None),
        Maker("OpenVINO", "openvino", source.name, lambda path: None),
        Maker("MNN", "mnn", f"{name}.mnn", lambda path: convert_mnn(source, path)),
    ]
    return build(name, "float32", folder, feed, makers, backend)


def _source(network: Network, folder: Path) -> Path:
    return ready(folder / f"{network.name}.onnx", lambda path: write_network(network, path))


def _feeds(network: Network, folder: Path) -> list[Feed]:
    samples = np.load(ready(folder / f"{network.name}.npy", lambda path: write_samples(network, path)))
    return [{network.input: sample[np.newaxis]} for sample in samples]


def _feed(network: Network, folder: Path) -> Path:
    return ready(folder / f"{network.name}.npz", lambda path: write_feed(path, _feeds(network, folder)[0]))
