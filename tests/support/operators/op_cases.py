"""Cases of operators: operands, expected results, and the checks of both; tests/schema/ops/conftest.py runs them."""

import functools
import importlib.util
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.operators import contract
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.definition.op import Op
from tpuconvert.schema.file.file_format import FileModel, read_model, write_model
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.types import Array, Chip, DType, TensorType


def f32(*values: Any) -> Array:
    return np.array(values, dtype=np.float32)


def f16(*values: Any) -> Array:
    return np.array(values, dtype=np.float16)


def i32(*values: Any) -> Array:
    return np.array(values, dtype=np.int32)


def i16(*values: Any) -> Array:
    return np.array(values, dtype=np.int16)


def u16(*values: Any) -> Array:
    return np.array(values, dtype=np.uint16)


def i8(*values: Any) -> Array:
    return np.array(values, dtype=np.int8)


def u8(*values: Any) -> Array:
    return np.array(values, dtype=np.uint8)


def type_of(array: Array) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape)


@dataclass
class Case:
    """Operands of an operator and its expected results. The note states their origin, which is never the operator."""

    op: Op
    inputs: list[Array | None]
    outputs: list[Array]
    note: str
    chips: tuple[Chip, ...] = field(default=tuple(Chip))

    def __str__(self) -> str:
        return f"{self.op}: {self.note}"

    def check(self) -> None:
        types = self.op.infer(*(None if array is None else type_of(array) for array in self.inputs))
        for chip in self.chips:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                results = self.op.evaluate(*self.inputs, chip=chip)
            assert len(results) == len(types) == len(self.outputs)
            for result, inferred, expected in zip(results, types, self.outputs, strict=True):
                assert result.dtype == inferred.dtype.numpy == expected.dtype, str(self)
                assert result.shape == expected.shape, str(self)
                assert inferred.rank == result.ndim, str(self)
                assert all(isinstance(a, str) or a == b for a, b in zip(inferred.shape, result.shape, strict=True))
                assert equal_bits(result, expected), f"{self} on {chip.value}: {result} instead of {expected}"

    def check_in_model(self, folder: Path) -> None:
        """Write a graph with the operator to a file, read it, and run it: attributes and results are preserved."""
        graph = Graph(self.op.name)
        arrays = {f"x{number}": array for number, array in enumerate(self.inputs) if array is not None}
        values = {name: graph.input(name, type_of(array)) for name, array in arrays.items()}
        operands = [values.get(f"x{number}") for number in range(len(self.inputs))]
        for result in graph.add_all(self.op, *operands):
            graph.output(result)
        write_model(folder / "one.tpum", FileModel(graph, self.chips[-1], "0"))
        model = read_model(os.fspath(folder / "one.tpum"))
        assert [str(node.op) for node in model.graph.nodes] == [str(self.op)]  # as text, in which NaN equals NaN
        results = list(Session(model, backend="reference").run(arrays).values())
        assert len(results) == len(self.outputs)
        for result, expected in zip(results, self.outputs, strict=True):
            assert equal_bits(result, expected)


@dataclass
class Use:
    """An operator with valid operands."""

    op: Op
    inputs: list[Array | None]
    name: str

    def __str__(self) -> str:
        return self.name


def equal_bits(first: Array, second: Array) -> bool:
    """Compare bytes; all NaN payloads are equal."""
    if first.dtype.kind == "f":
        nan = np.isnan(first)
        if not np.array_equal(nan, np.isnan(second)):
            return False
        first, second = np.where(nan, 0, first), np.where(nan, 0, second)
    return first.tobytes() == second.tobytes()


OPS = Path(__file__).resolve().parents[2] / "schema" / "ops"


@functools.cache
def all_cases() -> list[Case]:
    """Every case of every test file of an operator."""
    cases: list[Case] = []
    for path in sorted(OPS.rglob("test_*.py"), key=lambda path: path.name):
        if "CASES" in path.read_text(encoding="utf-8"):
            spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            cases += [case for case in getattr(module, "CASES", []) if isinstance(case, Case)]
    return cases


@functools.cache
def all_uses() -> list[Use]:
    """Operands of every case and every example of the contract. Each operator occurs at least once."""
    uses = [Use(case.op, case.inputs, str(case)) for case in all_cases()]
    for entry in contract.defined_entries():
        for example in entry["examples"]:
            first = next(iter(contract.results(entry, example).values()))
            op = contract.build(entry, example["params"], DType.of(first.dtype))
            uses.append(Use(op, contract.arguments(entry, example), f"{entry['name']}: {example['name']}"))
    return uses
