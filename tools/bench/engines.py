"""Opening a model file in an engine: a function that runs it once on one sample."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tpuconvert as tc
from tpuconvert.schema.file.file_format import FileModel, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.ops.activation import Active, ActiveType
from tpuconvert.schema.types import F32, Array, Chip, TensorType

Run = Callable[[], list[Array]]
"""Function that runs a model once and returns the outputs, as floats or in the integer type of the file."""


@dataclass(frozen=True)
class Job:
    """One model in one engine.

    Args:
        engine: key of ``ENGINES``.
        label: label of the engine in tables, such as ``ONNX Runtime INT8``.
        model: the model file.
        feeds: an ``.npz`` file with one sample per input name.
        threads: number of threads that the engine may use.
        backend: backend of tpuconvert; other engines ignore it.
    """

    engine: str
    label: str
    model: Path
    feeds: Path
    threads: int = 1
    backend: str = "auto"


def open_job(job: Job) -> Run:
    """Load the model. An engine that is not installed raises ImportError."""
    return ENGINES[job.engine](job)


def read_feeds(job: Job) -> dict[str, Array]:
    """Read the sample of a job."""
    with np.load(job.feeds) as archive:
        return {name: np.asarray(archive[name], order="C") for name in archive.files}


def open_session(job: Job, model: tc.Model | Path) -> tc.Session:
    """Open a session of tpuconvert with the settings of the job."""
    return tc.Session(model, backend=job.backend, threads=job.threads)  # type: ignore[arg-type]  # checked there


def _ours(job: Job) -> Run:
    feeds, session = read_feeds(job), open_session(job, job.model)
    return lambda: list(session.run(feeds).values())


def _onnxruntime(job: Job) -> Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(job.model), options, providers=["CPUExecutionProvider"])
    feeds = read_feeds(job)
    return lambda: list(session.run(None, feeds))


def _openvino(job: Job) -> Run:
    import openvino

    hints = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = openvino.Core().compile_model(job.model, "CPU", hints)
    request = compiled.create_infer_request()
    for name, array in read_feeds(job).items():
        request.set_tensor(name, openvino.Tensor(array))

    def run() -> list[Array]:
        request.infer()
        return [request.get_output_tensor(index).data for index in range(len(compiled.outputs))]

    return run


def _litert(job: Job) -> Run:
    """Open a model in LiteRT. Inputs are converted before timing: to channels-last, and to integers if quantized."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(job.model), num_threads=job.threads)
    interpreter.allocate_tensors()
    details, feeds = interpreter.get_input_details(), read_feeds(job)
    given = [_as_stored(feeds, detail, len(details)) for detail in details]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> list[Array]:
        for index, array in given:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


def _as_stored(feeds: dict[str, Array], detail: dict[str, object], count: int) -> tuple[int, Array]:
    index, shape, dtype = detail["index"], detail["shape"], detail["dtype"]
    assert isinstance(index, int) and isinstance(shape, np.ndarray) and isinstance(dtype, type), detail
    array = next(iter(feeds.values())) if count == 1 else feeds[str(detail["name"])]
    if array.shape != tuple(shape):
        array = array.transpose(0, 2, 3, 1)
    if array.dtype != dtype:
        quantization = detail["quantization"]
        assert isinstance(quantization, tuple), detail
        scale, zero_point = quantization
        limits = np.iinfo(dtype)
        array = np.clip(np.rint(array / scale) + zero_point, limits.min, limits.max).astype(dtype)
    return index, np.ascontiguousarray(array)


def _mnn(job: Job) -> Run:
    """Open a model in MNN. Its inputs and outputs are copied between its layout and ours in each run."""
    import MNN

    interpreter = MNN.Interpreter(str(job.model))
    session = interpreter.createSession({"backend": "CPU", "numThread": job.threads, "precision": "high"})
    feeds = read_feeds(job)

    def on_host(array: Array) -> Any:
        """Return a tensor in our layout. It has the memory of the array and does not keep it."""
        return MNN.Tensor(array.shape, MNN.Halide_Type_Float, array, MNN.Tensor_DimensionType_Caffe)

    given = [(interpreter.getSessionInput(session, name), on_host(array), array) for name, array in feeds.items()]
    tensors = interpreter.getSessionOutputAll(session).values()
    arrays = [np.zeros(tensor.getShape(), np.float32) for tensor in tensors]
    results = [(tensor, on_host(array), array) for tensor, array in zip(tensors, arrays, strict=True)]

    def run() -> list[Array]:
        for tensor, host, _ in given:  # with its array, which stays
            tensor.copyFrom(host)
        interpreter.runSession(session)
        for tensor, host, _ in results:
            tensor.copyToHostTensor(host)
        return [np.array(host.getNumpyData()) for _, host, _ in results]

    return run


def _peak(job: Job) -> Run:
    """Return a run of the peak-rate probe: ``peak.STEPS`` rounds of 8-bit multiply-accumulates in registers."""
    from tools.bench.peak import open_probe

    probe = open_probe(job.model)

    def run() -> list[Array]:
        probe()
        return []

    return run


ENGINES: dict[str, Callable[[Job], Run]] = {
    "tpuconvert": _ours,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "litert": _litert,
    "mnn": _mnn,
    "peak": _peak,
}


MODULES = {
    "tpuconvert": "tpuconvert.runtime.session.session",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "litert": "ai_edge_litert.interpreter",
    "mnn": "MNN",
    "peak": "bench.peak",
}


def import_engine(job: Job) -> None:
    """Import the modules of an engine without loading the model.

    tpuconvert imports some modules when it opens its first file: here, of a model with one operator.
    """
    importlib.import_module(MODULES[job.engine])
    if job.engine == "tpuconvert":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "small.tpum"
            graph = Graph("small")
            graph.output(graph.add(Active(ActiveType.ACTIVE_RELU), graph.input("x", TensorType(F32, (1, 8)))))
            write_model(path, FileModel(graph, Chip.BM1686, ""))
            with open_session(job, path) as session:
                session.run({"x": np.zeros((1, 8), np.float32)})


def limit_threads(threads: int, cpus: list[int]) -> None:
    """Pin this process, and set the thread count of libraries before they are imported."""
    os.sched_setaffinity(0, cpus)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
