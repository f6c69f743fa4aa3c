"""The specification of the operator set (``spec/*.yaml``) in terms of the package's definitions."""

import dataclasses
import functools
import typing
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tpuconvert.schema.definition.op import Op, all_ops
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


@functools.cache
def dtype_rules() -> Entry:
    """The named conditions of all files. A name has the same meaning in all of them."""
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
    """The dtype that stores elements of a type of the contract."""
    return DType.UINT16 if dtype == "BFLOAT16" else DType(dtype)


def defined_entries() -> list[Entry]:
    """The entries that have a definition."""
    known = all_ops()
    return [entry for entry in every_entry() if entry["name"] in known]


def undefined_names() -> list[str]:
    """Names of the entries that have none."""
    known = all_ops()
    return [entry["name"] for entry in every_entry() if entry["name"] not in known]


def array(tensor: Entry) -> Array:
    """A tensor of an example as a NumPy array."""
    if tensor["dtype"] == "BFLOAT16":
        words = np.array(tensor["data"], np.float32).view(np.uint32)
        # Contract data are exact or rounded to eight digits: take the nearest float.
        return ((words + 0x8000) >> 16).astype(np.uint16).reshape(tensor["shape"])
    dtype = DType(tensor["dtype"])
    return np.array(tensor["data"], dtype=dtype.numpy).reshape(tensor["shape"])


def arguments(entry: Entry, example: Entry) -> list[Array | None]:
    """Operands of an example in declaration order. Absent ones before the last are None."""
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
    """The definition with the parameters of an example. ``out_dtype`` is used where the result dtype is a parameter."""
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
    """Convert a parameter value of the contract to the type of the definition's field."""
    if isinstance(value, dict) and "value" in value:
        return Scalar(DType(value["dtype"]), value["value"])
    if parameter["type"] == "Scalar":
        return Scalar.f32(value)
    if "enum" in parameter:
        enum = enum_of(definition, parameter["name"])
        return enum[value] if isinstance(value, str) else enum(value)
    return tuple(value) if isinstance(value, list) else value


type_hints = functools.cache(typing.get_type_hints)
"""The evaluated annotations of a definition, which are strings in its module."""


def enum_of(definition: type[Op], field: str) -> Any:
    """The enumeration in the declaration of a field."""
    hint = type_hints(definition)[field]
    return next((part for part in typing.get_args(hint) if part is not type(None)), hint)


def types_of(arrays: list[Array | None]) -> list[TensorType | None]:
    """The tensor types of arrays."""
    return [None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays]
