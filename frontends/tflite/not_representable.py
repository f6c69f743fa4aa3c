"""Builtin operators that have no place in the operator set, and why; what to do about an operator without converter."""

from __future__ import annotations

CUSTOM_PREFIX = "CUSTOM:"
"""What stands before the name of a custom operator."""

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
"""Per builtin operator, why it cannot be converted."""


def explained(name: str, version: int, end: str) -> tuple[str, str]:
    """Why an operator has no converter, and the next step.

    Args:
        name: of the operator; a custom one with CUSTOM_PREFIX.
        version: which it has.
        end: the advice to end the model before it.
    """
    custom = name.removeprefix(CUSTOM_PREFIX)
    if custom.startswith("Flex"):
        lead = f"{custom.removeprefix('Flex')} of TensorFlow, which its Flex delegate runs"
        return lead, f"export without SELECT_TF_OPS, {end}, or give a converter by --plugin"
    if name.startswith(CUSTOM_PREFIX):
        return "a custom operator", f'@register_converter("tflite", "{custom}") in a --plugin file, or {end}'
    if name in REASONS:
        return REASONS[name], end
    if name.startswith("operator "):
        return f"code {name.removeprefix('operator ')} of a later schema", f"{end}, or export for an older runtime"
    return "" if version == 1 else f"version {version}", f"{end}, or give a converter by --plugin"
