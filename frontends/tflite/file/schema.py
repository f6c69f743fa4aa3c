"""FlatBuffers schema of TFLite files, for the verifier and for the options of operators.

The fields of options tables are derived from the ``tflite`` package. The other tables are listed here after
``tensorflow/lite/schema/schema.fbs``, because the package does not state the types of nested tables. A test compares
all tables with the package, slot by slot.
"""

import re
import sys
from typing import Any

import tflite

from tpuconvert.schema.file.flatbuffer_schema import Schema

IDENTIFIER = b"TFL3"

_MODEL = {
    "Model": (
        "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer] "
        "metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]"
    ),
    "OperatorCode": "deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32",
    "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str debug_metadata_index:i32=-1",
    "Tensor": (
        "shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters is_variable:bool "
        "sparsity:SparsityParameters shape_signature:[i32] has_rank:bool variant_tensors:[VariantSubType]"
    ),
    "QuantizationParameters": (
        "min:[f32] max:[f32] scale:[f32] zero_point:[i64] details:<QuantizationDetails> quantized_dimension:i32"
    ),
    "CustomQuantization": "custom:[u8]",
    "SparsityParameters": "traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": (
        "format:i8 dense_size:i32 array_segments:<SparseIndexVector> array_indices:<SparseIndexVector>"
    ),
    "Int32Vector": "values:[i32]",
    "Uint16Vector": "values:[u16]",
    "Uint8Vector": "values:[u8]",
    "VariantSubType": "shape:[i32] type:i8 has_rank:bool",
    "Operator": (
        "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options:<BuiltinOptions> custom_options:[u8] "
        "custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32] "
        "large_custom_options_offset:u64 large_custom_options_size:u64 builtin_options2:<BuiltinOptions2> "
        "debug_metadata_index:i32=-1"
    ),
    "Buffer": "data:[u8] offset:u64 size:u64",
    "Metadata": "name:str buffer:u32",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:str _ subgraph_index:u32",
    "TensorMap": "name:str tensor_index:u32",
}

_SCALARS = {
    **{"Bool": "bool", "Int8": "i8", "Uint8": "u8", "Int32": "i32", "Uint32": "u32", "Int64": "i64", "Uint64": "u64"},
    "Float32": "f32",
}
_VECTORS = {1: "[u8]", 4: "[i32]", 8: "[i64]"}
"""Vector types by element size; the verifier does not distinguish types of equal size."""


def enum_names(enum: type) -> dict[int, str]:
    """Names of an enumeration of the ``tflite`` package by value, in ascending order."""
    # From Python 3.13 on, classes also have the integer __firstlineno__.
    members = {name: value for name, value in vars(enum).items() if not name.startswith("__")}
    return dict(sorted((value, name) for name, value in members.items() if isinstance(value, int)))


def integers(accessor: Any, name: str) -> tuple[int, ...]:
    """Elements of a vector of scalars; empty if it is absent, for which the package returns 0."""
    if getattr(accessor, f"{name}IsNone")():
        return ()
    return tuple(getattr(accessor, f"{name}AsNumpy")().tolist())


def _union_members(enum: type) -> tuple[str, ...]:
    return tuple(enum_names(enum).values())[1:]  # without the first member, NONE


class _BuilderCalls:
    """Mock of a FlatBuffers builder that records the method and arguments of the last call."""

    method = ""
    arguments: tuple[Any, ...] = ()

    def __getattr__(self, method: str) -> Any:
        def keep(*arguments: Any) -> None:
            self.method, self.arguments = method, arguments

        return keep


def _describe_options(table: str) -> str:
    """Fields of an options table in the notation of ``Schema``, derived from the package's writer functions."""
    functions, calls, fields = vars(sys.modules[f"tflite.{table}"]), _BuilderCalls(), dict[int, str]()
    for function, add in functions.items():
        if not function.startswith(f"{table}Add"):
            continue
        name = function.removeprefix(f"{table}Add")
        add(calls, 0)
        slot, _, default = calls.arguments
        type_name = _SCALARS.get(calls.method.removeprefix("Prepend").removesuffix("Slot"), "str")
        if start_vector := functions.get(f"{table}Start{name}Vector"):
            start_vector(calls, 0)
            type_name = _VECTORS[calls.arguments[0]]
        snake_case = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        fields[slot] = f"{snake_case}:{type_name}" + (f"={default}" if default else "")
    return " ".join(fields.get(slot, "_") for slot in range(max(fields, default=-1) + 1))


_BUILTIN_OPTIONS, _BUILTIN_OPTIONS_2 = map(_union_members, (tflite.BuiltinOptions, tflite.BuiltinOptions2))

SCHEMA = Schema(
    tables={**_MODEL, **{table: _describe_options(table) for table in _BUILTIN_OPTIONS + _BUILTIN_OPTIONS_2}},
    unions={
        "BuiltinOptions": _BUILTIN_OPTIONS,
        "BuiltinOptions2": _BUILTIN_OPTIONS_2,
        "QuantizationDetails": _union_members(tflite.QuantizationDetails),
        "SparseIndexVector": _union_members(tflite.SparseIndexVector),
    },
)
