"""Random small ONNX networks in INT8: the result is accurate, or a warning names the output.

The networks have what breaks quantizers: features of different ranges, one large channel, exponentials and sines of
large numbers, small divisors, differences of one sign, several outputs, classes, batches above 1, and inputs of rank 0.
ONNX Runtime computes the expected outputs, on samples that calibration does not use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpuconvert as tc
from tests.support.sampled import sampled
from tpuconvert.model.accuracy_notes import AccuracyWarning
from tpuconvert.schema.errors import InternalError, TpuConvertError

FRESH = 24
LEAST = 0.98
"""Smallest median cosine on other samples without a warning. The limit of the warning is 0.99, on few samples."""

LEAST_OF_ALL = 0.9
"""Smallest cosine of all these samples together: the calibration may have no sample like the worst of them."""

Array = np.ndarray


class RandomNetwork:
    """A network from a seed, with its samples."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.samplers: dict[str, Callable[[np.random.Generator], Array]] = {}
        self.outputs: list[tuple[str, int]] = []
        self.batch = int(self.rng.choice([1, 1, 2, 4]))
        self.is_image = bool(self.rng.random() < 0.5)
        self._build()

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}_{op.lower()}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def spread(self, *shape: int) -> Array:
        return self.rng.choice([1, 1, 1, 10, 100, 1e-3], shape)

    def linear(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        bias = self.constant(self.rng.normal(size=outputs) * 0.1)
        if not self.is_image:
            weights = self.rng.normal(size=(inputs, outputs)) * gain / np.sqrt(inputs)
            return self.add("Add", self.add("MatMul", x, self.constant(weights)), bias)
        kernel = int(self.rng.choice([1, 3]))
        weights = self.rng.normal(size=(outputs, inputs, kernel, kernel)) * gain / np.sqrt(inputs * kernel**2)
        if self.rng.random() < 0.15:
            weights[0] *= 300
        return self.add("Conv", x, self.constant(weights), bias, pads=[kernel // 2] * 4)

    def _input(self, name: str, shape: list[int], dtype: int, sampler: Callable[[np.random.Generator], Array]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        self.samplers[name] = sampler

    def _build(self) -> None:
        rng, size = self.rng, 8
        features = int(rng.choice([3, 4, 8]))
        spatial = [6, 6] if self.is_image else []
        ones = [1] * len(spatial)
        scale = self.spread(features, *ones)
        mean = self.spread(features, *ones) * rng.choice([0, 0, 1], (features, *ones))
        shape = [self.batch, features, *spatial]
        self._input("x", shape, TensorProto.FLOAT, lambda g: (g.normal(size=shape) * scale + mean).astype(np.float32))
        x = "x"
        if rng.random() < 0.3:
            x = self.add("Div", self.add("Sub", x, self.constant(mean)), self.constant(scale))
        y = self.linear(x, features, size, float(rng.choice([1, 1, 1, 5, 30])))
        choice = rng.random()
        if choice < 0.2:
            self._input("t", [], TensorProto.FLOAT, lambda g: np.asarray(g.random() * 2, np.float32))
            y = self.add("Mul", y, "t")
        elif choice < 0.4:
            self._input("t", [], TensorProto.INT64, lambda g: np.asarray(g.integers(0, 4), np.int64))
            y = self.add("Add", y, self.add("Gather", self.constant(rng.normal(size=(4, size, *ones))), "t", axis=0))
        for _ in range(int(rng.integers(1, 4))):
            y = self._layer(y, size)
            if rng.random() < 0.25:
                self.outputs.append((y, TensorProto.FLOAT))
            before, size = size, int(rng.choice([4, 8]))
            y = self.linear(y, before, size, float(rng.choice([1, 1, 5])))
        if rng.random() < 0.3:
            y = self.add(str(rng.choice(["Sin", "Exp", "Sigmoid"])), y)
        self.outputs.append((y, TensorProto.FLOAT))
        if rng.random() < 0.2:
            self.outputs.append((self.add("ArgMax", y, axis=1, keepdims=0), TensorProto.INT64))

    def _layer(self, y: str, size: int) -> str:
        simple = ("Relu", "Sigmoid", "Tanh", "Exp", "Sin", "Abs", "Neg", "LeakyRelu")
        kind = str(
            self.rng.choice(
                [*simple, "Sqrt", "Square", "SiLU", "Softmax", "Sub", "SubRelu", "Div", "Residual", "Scale"]
            )
        )
        if kind in simple:
            return self.add(kind, y)
        if kind == "Sqrt":
            return self.add("Sqrt", self.add("Abs", y))
        if kind == "Square":
            return self.add("Mul", y, y)
        if kind == "SiLU":
            return self.add("Mul", y, self.add("Sigmoid", y))
        if kind == "Softmax":
            return self.add("Softmax", y, axis=1)
        if kind == "Scale":
            factors = self.spread(1, size, *([1, 1] if self.is_image else []))
            return self.add("Mul", y, self.constant(factors))
        other = self.linear(y, size, size)
        if kind == "Residual":
            return self.add("Add", y, self.linear(self.add("Relu", other), size, size))
        if kind == "Div":
            least = self.constant(float(self.rng.choice([1, 0.01])))
            return self.add("Div", y, self.add("Add", self.add("Abs", other), least))
        if kind == "Sub":
            return self.add("Sub", self.linear(y, size, size), other)
        return self.add("Relu", self.add("Sub", self.linear(y, size, size), self.add("Relu", other)))

    def model(self) -> onnx.ModelProto:
        outputs = [helper.make_tensor_value_info(f"out{i}", dtype, None) for i, (_, dtype) in enumerate(self.outputs)]
        last = [helper.make_node("Identity", [name], [f"out{i}"]) for i, (name, _) in enumerate(self.outputs)]
        graph = helper.make_graph([*self.nodes, *last], "net", self.inputs, outputs, self.constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(proto)

    def samples(self, count: int, seed: int) -> list[dict[str, Array]]:
        rng = np.random.default_rng(seed)
        return [{name: sampler(rng) for name, sampler in self.samplers.items()} for _ in range(count)]


def cosine(a: Array, b: Array) -> float:
    a, b = (array.astype(np.float64).ravel() for array in (a, b))
    if a.shape != b.shape or not np.isfinite(b).all():
        return 0.0
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / norm if norm else float(np.array_equal(a, b))


def check(seed: int) -> None:
    network = RandomNetwork(seed)
    proto = network.model()
    calibration, fresh = network.samples(48, 1), network.samples(FRESH, 2)
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = [reference.run(None, feed) for feed in fresh]
    if not all(np.isfinite(array).all() for run in wanted for array in run):
        return
    for chip in ("bm1684", "bm1686"):
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", AccuracyWarning)
                model = tc.convert(proto, chip=chip, quantize="int8", calibration=calibration)
        except InternalError:
            raise
        except TpuConvertError:
            continue
        texts = [str(item.message) for item in caught if item.category is AccuracyWarning]
        with tc.Session(model) as session:
            runs = [session.run(feed) for feed in fresh]
        for index in range(len(network.outputs)):
            name = f"out{index}"
            pairs = [(a[index], b[name]) for a, b in zip(wanted, runs, strict=True)]
            median = float(np.median([cosine(*pair) for pair in pairs]))
            of_all = cosine(*(np.stack(arrays) for arrays in zip(*pairs, strict=True)))
            is_told = any(f"output '{name}'" in text for text in texts)
            text = f"seed {seed}, {chip}: {name} has a median cosine of {median:.4f}, and {of_all:.4f} of all samples"
            assert is_told or (median >= LEAST and of_all >= LEAST_OF_ALL), text


@pytest.mark.parametrize("seed", sampled(range(5)))
def test_results_are_accurate_or_warned_about(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 10))
def test_many_results_are_accurate_or_warned_about(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)
