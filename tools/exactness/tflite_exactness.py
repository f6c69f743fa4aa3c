"""Comparison of converted TFLite models with the TensorFlow Lite kernels: one line per model.

    python -m tools.exactness.tflite_exactness [MODEL ...] [--chip bm1686] [--backend native] [--samples 20]
        [--random 20]
    python -m tools.exactness.tflite_exactness --layers
    python -m tools.exactness.tflite_exactness --rounding single --markdown

Without names, all quantized TFLite models of the data set are compared, with ``--layers`` its single-layer models. A
name may also be a file. Inputs are the data set's reference inputs, its evaluation images and random integers. The
oracle is ``ai-edge-litert`` with its reference kernels, which round twice; with ``--rounding single`` its default
delegate (XNNPACK), which rounds once.

Each line has the number of compared output elements, the number of different ones, the largest difference in steps, the
first tensor that differs from the reference kernels, and the operators of the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.accuracy.datasets import Entry, data_root, entries, labeled_set, model_files, reference_samples
from tpuconvert.frontends.tflite.file.reader import read_model
from tpuconvert.schema.errors import TpuConvertError
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.types import Array

Arrays = list[Array]

CHANNELS_FIRST = ":nchw"


class Oracle:
    """A TFLite model run by ai-edge-litert: by its reference kernels, or by its default delegate.

    Args:
        file: the model.
        rounding: ``double`` for the reference kernels, ``single`` for the delegate.
        keeps_tensors: whether every tensor can be read after a run; the reference kernels only.
    """

    def __init__(self, file: Path, rounding: str = "double", keeps_tensors: bool = False) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kind = OpResolverType.BUILTIN_REF if rounding == "double" else OpResolverType.AUTO
        self.interpreter = Interpreter(
            str(file),
            experimental_op_resolver_type=kind,
            experimental_preserve_all_tensors=keeps_tensors and rounding == "double",
        )
        self.inputs = self.interpreter.get_input_details()
        self.outputs = self.interpreter.get_output_details()
        self.interpreter.allocate_tensors()

    def run(self, feeds: Arrays) -> Arrays:
        """Run the model with its variables reset. Return the outputs in the model's order."""
        self.interpreter.reset_all_variables()
        for item, array in zip(self.inputs, feeds, strict=True):
            self.interpreter.set_tensor(item["index"], array)
        self.interpreter.invoke()
        return [self.interpreter.get_tensor(item["index"]) for item in self.outputs]

    def tensors(self) -> dict[str, Array]:
        """Return every tensor that can be read after a run, by name."""
        arrays = {}
        for item in self.interpreter.get_tensor_details():
            try:
                arrays[item["name"]] = self.interpreter.get_tensor(item["index"])
            except ValueError:  # no data: a scratch buffer, or a tensor without producer
                continue
        return arrays

    def random_feeds(self, generator: np.random.Generator) -> Arrays:
        """Create random inputs in the model's order: integers over the whole range of their type, normal floats."""
        feeds: Arrays = []
        for item in self.inputs:
            dtype, shape = np.dtype(item["dtype"]), tuple(item["shape"])
            if dtype.kind == "f":
                feeds.append(generator.standard_normal(shape).astype(dtype))
            elif dtype.kind == "b":
                feeds.append(generator.integers(0, 2, shape).astype(dtype))
            else:
                limits = np.iinfo(dtype)
                low, high = (limits.min, limits.max) if dtype.itemsize <= 2 else (-(2**20), 2**20)
                feeds.append(generator.integers(low, high, shape, endpoint=True).astype(dtype))
        return feeds


@dataclass
class Line:
    """Comparison of one model with the oracle."""

    name: str
    operators: str = ""
    elements: int = 0
    different: int = 0
    largest: float = 0.0
    first: str = ""
    problem: str = ""

    def add(self, array: Array, want: Array) -> bool:
        """Compare one output; return True if it differs."""
        if array.shape != want.shape or array.dtype != want.dtype:
            self.problem = f"{array.dtype} {array.shape} where {want.dtype} {want.shape} was expected"
            return True
        apart = np.abs(array.astype(np.float64) - want.astype(np.float64))
        self.elements += apart.size
        self.different += int((apart != 0).sum())
        self.largest = max(self.largest, float(apart.max(initial=0.0)))
        return bool(apart.any())

    @property
    def is_exact(self) -> bool:
        """Return True if nothing differs."""
        return not self.problem and not self.different

    @property
    def agreement(self) -> float:
        """Share of equal output elements."""
        return 1.0 - self.different / max(self.elements, 1)

    @property
    def row(self) -> str:
        """Format as a row of a Markdown table: model, elements, equal elements, largest difference."""
        return f"| {self.name} | {self.elements:,} | {100 * self.agreement:.2f} % | {self.largest:g} |"

    def __str__(self) -> str:
        """Format as a line of text with columns separated by two spaces."""
        if self.problem:
            return f"{self.name}  {self.problem}"
        share = f"{self.elements:>9} elements  {self.different:>7} different ({100 * self.agreement:.4f} % equal)"
        return f"{self.name}  {share}  largest {self.largest:g}  {self.first or 'exact'}  [{self.operators}]"


def operators(file: Path) -> str:
    """Return the operators of a file with their counts, as text."""
    from tpuconvert.schema.system.limits import DEFAULT_LIMITS

    counts = Counter(op.name for op in read_model(file, DEFAULT_LIMITS).subgraphs[0].operators)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def outputs_by_name(session: tc.Session, feeds: Arrays) -> dict[str, Array]:
    """Map the inputs to the input names of the converted model."""
    return {port.name: array for port, array in zip(session.inputs, feeds, strict=True)}


def first_difference(model: tc.Model, backend: str, file: Path, feeds: Arrays) -> str:
    """Return the first tensor in execution order whose integers differ from the reference kernels."""
    oracle = Oracle(file, keeps_tensors=True)
    oracle.run(feeds)
    expected = oracle.tensors()
    differences: list[str] = []

    def look(value: Value, array: Array) -> None:
        name = value.name.removesuffix(CHANNELS_FIRST)
        want = expected.get(name)
        if differences or want is None or want.dtype != array.dtype or want.size != array.size:
            return
        if value.name != name:
            array = np.moveaxis(array, 1, -1)
        apart = np.abs(array.reshape(-1).astype(np.float64) - want.reshape(-1).astype(np.float64))
        if apart.any():
            source = value.producer.sources[0].op if value.producer and value.producer.sources else "input"
            differences.append(
                f"first at '{name}' ({source}): {int((apart != 0).sum())} of {apart.size}, up to {apart.max():g}"
            )

    with tc.Session(model, backend=backend) as session:  # type: ignore[arg-type]  # the commands give one of the two
        session.run(outputs_by_name(session, feeds), observe=look)
    return differences[0] if differences else "no tensor inside differs"


def measure(name: str, file: Path, samples: list[Arrays], options: argparse.Namespace) -> Line:
    """Compare one model on samples and random inputs."""
    line = Line(name, operators(file))
    oracle = Oracle(file, options.rounding)
    names = list(oracle.interpreter.get_signature_list())
    signature = names[0] if len(names) > 1 else None  # the interpreter runs the first signature
    try:
        model = tc.convert(
            file,
            chip=options.chip,
            source_options=tc.SourceOptions(tflite_rounding=options.rounding, signature=signature),
        )
    except TpuConvertError as error:
        line.problem = "not converted: " + " ".join(str(error).split())
        return line
    generator = np.random.default_rng(0)
    feeds = samples + [oracle.random_feeds(generator) for _ in range(options.random)]
    with tc.Session(model, backend=options.backend) as session:
        for feed in feeds:
            results, want = list(session.run(outputs_by_name(session, feed)).values()), oracle.run(feed)
            differs = [line.add(*pair) for pair in zip(results, want, strict=True)]
            if any(differs) and not line.first and options.rounding == "double":
                line.first = first_difference(model, options.backend, file, feed)
    return line


def is_quantized(entry: Entry) -> bool:
    """Return True if a model of the data set is quantized."""
    return any("quantization" in item for item in (*entry["inputs"], *entry["outputs"]))


def trained_models(names: list[str], count: int) -> Iterator[tuple[str, Path, list[Arrays]]]:
    """Yield the models of the data set with their reference inputs and ``count`` evaluation samples."""
    root = data_root()
    all_entries = entries(root)
    for name in names or [
        key for key, entry in all_entries.items() if entry["format"] == "tflite" and is_quantized(entry)
    ]:
        if name not in all_entries:
            yield name, Path(name), []
            continue
        entry = all_entries[name]
        feeds = [list(sample.values()) for sample, _ in reference_samples(root, entry)]
        if "labels" in entry and count:
            feeds += [[sample] for sample in labeled_set(root, entry).samples[:count]]
        yield name, model_files(root, entry)[0], feeds


def layers() -> Iterator[tuple[str, Path, list[Arrays]]]:
    """Yield the single-layer models of the data set that compute in integers."""
    root = data_root()
    for case in json.loads((root / "layers" / "cases.json").read_text(encoding="utf-8")):
        if case["format"] != "tflite":
            continue
        if any(quant["scale"] for quant in (*case.get("in_quant", ()), *case.get("out_quant", ()))):
            yield case["id"], root / case["paths"]["model.tflite"], []


def main() -> int:
    """Print one line per model. Return 1 if an output differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of the data set's models, or files")
    parser.add_argument("--chip", default="bm1686")
    parser.add_argument("--backend", default="native", choices=("native", "reference"))
    parser.add_argument("--rounding", default="double", choices=("double", "single"))
    parser.add_argument("--samples", type=int, default=20, help="evaluation samples per model")
    parser.add_argument("--random", type=int, default=20, help="random inputs per model")
    parser.add_argument("--markdown", action="store_true", help="rows of a Markdown table instead of lines")
    parser.add_argument("--layers", action="store_true", help="the data set's single layers instead of its models")
    options = parser.parse_args()
    cases = layers() if options.layers else trained_models(options.models, options.samples)
    exact = True
    for name, file, samples in cases:
        line = measure(name, file, samples, options)
        exact = exact and line.is_exact
        print(line.row if options.markdown and not line.problem else line, flush=True)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
