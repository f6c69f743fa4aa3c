"""Builtin operators that the TPU operator set cannot represent, with reasons and hints."""

from __future__ import annotations

from collections.abc import Iterable

from tpuconvert.schema.text.spelling import did_you_mean

CUSTOM_PREFIX = "CUSTOM:"
"""Prefix of the name of a custom operator."""

_REASONS = {
    "strings and hash tables": (
        *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_LOOKUP", "HASHTABLE_SIZE"),
        *("CONCAT_EMBEDDINGS", "LSH_PROJECTION", "SKIP_GRAM"),
    ),
    "sparse segments whose lengths depend on the data": ("EMBEDDING_LOOKUP_SPARSE",),
    "random numbers": ("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "STABLEHLO_RNG_BIT_GENERATOR"),
    "the number of distinct values depends on the data": ("UNIQUE",),
    "a part of a runtime that no exporter writes": ("DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"),
    "a function of another compiler": ("STABLEHLO_CUSTOM_CALL",),
}
REASONS = {name: reason for reason, names in _REASONS.items() for name in names}
"""Reason why a builtin operator cannot be converted, by operator."""


def explain(name: str, version: int, convertible: Iterable[str]) -> tuple[str, str]:
    """Return the reason why an operator has no converter, and a next step for the user.

    Args:
        name: name of the operator; the name of a custom operator begins with CUSTOM_PREFIX.
        version: version of the operator in the file.
        convertible: names of the operators that have converters.
    """
    custom = name.removeprefix(CUSTOM_PREFIX)
    if custom.startswith("Flex"):
        lead = f"{custom.removeprefix('Flex')} of TensorFlow, which its Flex delegate runs"
        return lead, "export without SELECT_TF_OPS, or give a converter by --plugin"
    if name.startswith(CUSTOM_PREFIX):
        register = f'@register_converter("tflite", "{custom}") in a --plugin file'
        return "a custom operator", "\n".join(filter(None, (did_you_mean(custom, convertible), register)))
    if name in REASONS:
        return REASONS[name], ""
    if name.startswith("operator "):
        return f"code {name.removeprefix('operator ')} of a later schema", "export for an older runtime"
    return "" if version == 1 else f"version {version}", "give a converter by --plugin"


WITHOUT_SCALES = frozenset(
    {"FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR", "RIGHT_SHIFT", "MATRIX_DIAG", "SCATTER_ND", "FAKE_QUANT"}
    | {"STABLEHLO_ADD", "STABLEHLO_SUBTRACT", "STABLEHLO_MULTIPLY", "STABLEHLO_DIVIDE", "STABLEHLO_REMAINDER"}
)
"""Operators whose kernels compute with the stored integers of a quantized tensor, without scale and zero point."""

COPIED_OPERANDS = {"GATHER": (0,), "GATHER_ND": (0,), "SELECT": (1, 2), "SELECT_V2": (1, 2)}
"""Operands whose integers become the integers of the result, so that both must have the same scale and zero point."""

RELABELED_OPERANDS = {
    **dict.fromkeys(
        ("RESHAPE", "SQUEEZE", "TRANSPOSE", "TILE", "BROADCAST_TO", "SLICE", "STRIDED_SLICE", "SPLIT_V"), (0,)
    ),
    **dict.fromkeys(
        ("REVERSE_V2", "REVERSE_SEQUENCE", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "PAD", "TOPK_V2", "SPLIT_V"), (0,)
    ),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), (0,)),
    **dict.fromkeys(("MAXIMUM", "MINIMUM", "DYNAMIC_UPDATE_SLICE"), (0, 1)),
    **{"SPLIT": (1,), "EMBEDDING_LOOKUP": (1,)},
}
"""Operands whose integers the kernel uses as if they had the scale and zero point of the result."""

IGNORED_SCALES = (
    "the scales of its quantized operands and result, which the TFLite kernel ignores",
    "export the model with DEQUANTIZE before and QUANTIZE after it",
)
