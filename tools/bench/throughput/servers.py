"""Engines that serve several clients at a time.

A server is a function that returns, for one more client, a function that runs one request: a batch of images. Every
engine has the settings that its documentation recommends for the number of clients: all threads for each request if
there is one client, and else one stream per thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.bench.engines import Run
from tools.bench.prepare import ready
from tpuconvert.schema.types import Array


@dataclass(frozen=True)
class Service:
    """One model in one engine, with the load that it is set up for.

    Args:
        engine: key of ``SERVERS``.
        label: label of the engine in tables.
        model: the model file, which takes one image at a time.
        feeds: an ``.npz`` file with one image per input name.
        threads: number of threads that the engine may use.
        batch: number of images of a request.
        clients: number of clients, each of which has one request at a time.
    """

    engine: str
    label: str
    model: Path
    feeds: Path
    threads: int
    batch: int
    clients: int


def read_batch(service: Service) -> dict[str, Array]:
    """Return the input of a request."""
    with np.load(service.feeds) as archive:
        return {name: np.repeat(archive[name], service.batch, axis=0) for name in archive.files}


def _ours(service: Service) -> Callable[[], Run]:
    """One session for everything: it uses all threads for one request, and one for each of several."""
    session, feeds = tc.Session(service.model, threads=service.threads), read_batch(service)
    return lambda: lambda: list(session.run(feeds).values())


def _onnxruntime(service: Service) -> Callable[[], Run]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = service.threads if service.clients == 1 else 1
    options.inter_op_num_threads = 1
    path = ready(
        service.model.with_suffix(f".batch{service.batch}.onnx"),
        lambda target: write_batched_onnx(service.model, target, service.batch),
    )
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = read_batch(service)
    return lambda: lambda: list(session.run(None, feeds))


def write_batched_onnx(source: Path, target: Path, batch: int) -> None:
    """Write a copy of a model of one image that takes a batch. Shapes of intermediate values are inferred again."""
    import onnx

    model = onnx.load(source)
    del model.graph.value_info[:]
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(model, target)


def _openvino(service: Service) -> Callable[[], Run]:
    import openvino

    hints = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": service.threads,
        "PERFORMANCE_HINT": "LATENCY" if service.clients == 1 else "THROUGHPUT",
        "ENABLE_CPU_PINNING": False,
    }
    if service.clients > 1:
        hints["PERFORMANCE_HINT_NUM_REQUESTS"] = service.clients
    feeds, core = read_batch(service), openvino.Core()
    model = core.read_model(service.model)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(model, "CPU", hints)

    def client() -> Run:
        request = compiled.create_infer_request()
        for name, array in feeds.items():
            request.set_tensor(name, openvino.Tensor(array))

        def run() -> list[Array]:
            request.infer()
            return [request.get_output_tensor(index).data for index in range(len(compiled.outputs))]

        return run

    return client


SERVERS: dict[str, Callable[[Service], Callable[[], Run]]] = {
    "tpuconvert": _ours,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
