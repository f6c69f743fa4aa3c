"""The operator set's contract (``tests/spec/*.yaml``) in terms of our definitions, for tests that compare the two."""

import dataclasses
import functools
import typing
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tpuconvert.schema.op import Op, all_ops
from tpuconvert.schema.types import Array, Chip, DType, Scalar, TensorType

SPEC = Path(__file__).resolve().parent / "spec"
FILES = ("operators.yaml", "atomics.yaml", "synet.yaml")

Entry = dict[str, Any]


@functools.cache
def document(file: str = "operators.yaml") -> Entry:
    """One file of the contract."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with (SPEC / file).open(encoding="utf-8") as stream:
        content: Entry = yaml.load(stream, Loader=loader)
    return content


def every_entry() -> list[Entry]:
    """The operators of all files."""
    return [entry for file in FILES for entry in document(file)["ops"]]


def dtype_rules() -> Entry:
    """The named conditions of all files; the same name means the same everywhere."""
    rules: Entry = {}
    for file in FILES:
        for name, rule in document(file)["dtype_rules"].items():
            assert rules.setdefault(name, rule)["expr"] == rule["expr"], name
    return rules


def table(entry: Entry, chip: Chip) -> Entry:
    """The data types of an entry on a chip. Functions of the host are the same beside every chip.

    BFLOAT16 is not a data type of the set: its words are UINT16 here, as in the library that the functions are from.
    """
    found: Entry = entry["dtypes"].get("HOST") or entry["dtypes"][chip.value]
    cases = [
        {
            **case,
            "operands": {name: [storage(dtype).value for dtype in dtypes] for name, dtypes in case["operands"].items()},
        }
        for case in found.get("cases", [])
    ]
    return {**found, "cases": cases}


def storage(dtype: str) -> DType:
    """The data type that holds elements of a type of the contract."""
    return DType.UINT16 if dtype == "BFLOAT16" else DType(dtype)


def defined() -> list[Entry]:
    """The entries that have a definition."""
    known = all_ops()
    return [entry for entry in every_entry() if entry["name"] in known]


def undefined() -> list[str]:
    """Names of the entries that have none."""
    known = all_ops()
    return [entry["name"] for entry in every_entry() if entry["name"] not in known]


def array(tensor: Entry) -> Array:
    """A tensor of an example as an array."""
    if tensor["dtype"] == "BFLOAT16":
        words = np.array(tensor["data"], np.float32).view(np.uint32)
        # Contract data are exact, or rounded to eight digits: the nearest word is what is meant.
        return ((words + 0x8000) >> 16).astype(np.uint16).reshape(tensor["shape"])
    dtype = DType(tensor["dtype"])
    return np.array(tensor["data"], dtype=dtype.numpy).reshape(tensor["shape"])


def arguments(entry: Entry, example: Entry) -> list[Array | None]:
    """The operands of an example in declaration order, None for absent ones that others follow."""
    values: list[Array | None] = []
    for operand in entry["inputs"]:
        given = example["inputs"].get(operand["name"])
        if isinstance(given, list):
            values.extend(array(tensor) for tensor in given)
        else:
            values.append(None if given is None else array(given))
    # A whole tensor among the parameters is the data of a constant operand.
    return values + [array(example["params"][name]) for name in tensor_parameters(entry)]


def tensor_parameters(entry: Entry) -> list[str]:
    """Names of the parameters that are tensors; definitions have them as operands."""
    return [parameter["name"] for parameter in entry["params"] if parameter["type"] == "tensor"]


def results(entry: Entry, example: Entry) -> dict[str, Array]:
    """The expected results that an example states, in declaration order."""
    expected = {}
    for operand in entry["outputs"]:
        given = example["outputs"].get(operand["name"])
        if isinstance(given, list):
            expected.update({f"{operand['name']}[{i}]": array(tensor) for i, tensor in enumerate(given)})
        elif given is not None:
            expected[operand["name"]] = array(given)
    return expected


def build(entry: Entry, given: dict[str, Any], out_dtype: DType | None = None) -> Op:
    """The definition with the parameters of an example; ``out_dtype`` is used where the result type is free."""
    definition = all_ops()[entry["name"]]
    values = {}
    for parameter in entry["params"]:
        if parameter["name"] in given and parameter["name"] not in tensor_parameters(entry):
            values[parameter["name"]] = field_value(definition, parameter, given[parameter["name"]])
    if "out_dtype" in names_of(definition):
        values["out_dtype"] = out_dtype
    return definition(**values)


def names_of(definition: type[Op]) -> list[str]:
    """The parameters of a definition, in declaration order."""
    return [item.name for item in dataclasses.fields(definition)]


def field_value(definition: type[Op], parameter: Entry, value: Any) -> Any:
    """A parameter value of the contract as the definition takes it."""
    if isinstance(value, dict) and "value" in value:
        return Scalar(DType(value["dtype"]), value["value"])
    if parameter["type"] == "Scalar":
        return Scalar.f32(value)
    if "enum" in parameter:
        enum = enum_of(definition, parameter["name"])
        return enum[value] if isinstance(value, str) else enum(value)
    return tuple(value) if isinstance(value, list) else value


def enum_of(definition: type[Op], field: str) -> Any:
    """The enumeration that a field is declared with."""
    hint = typing.get_type_hints(definition)[field]
    return next((part for part in typing.get_args(hint) if part is not type(None)), hint)


def types_of(arrays: list[Array | None]) -> list[TensorType | None]:
    """The tensor types of arrays."""
    return [None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays]
