"""ONNX operators that cannot be expressed as TPU operators, with the reasons."""

from __future__ import annotations

from tpuconvert.frontends.registry import registry

_REASONS = {
    "random numbers": (
        "Bernoulli",
        "Multinomial",
    ),
    "a training loss": ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    "string data": (
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    ),
    "image decoding is outside of the graph": ("ImageDecoder",),
    "the number of distinct values is data-dependent": ("Unique",),
}
REASONS = {operator: reason for reason, operators in _REASONS.items() for operator in operators}
"""Operator of the default domain -> the reason why it cannot be converted."""

registry("onnx").refuse(REASONS)

DOMAINS = {
    "ai.onnx.preview.training": "training",
    "ai.onnx.training": "training",
    "ai.onnx.ml": "an operator of classical machine learning",
    "ai.onnx.preview": "a preview operator, whose meaning may still change",
}
"""Domain of the standard -> the reason why none of its operators can be converted."""


def reason(operator: str, domain: str) -> str:
    """Return the reason why an operator cannot be converted, or an empty string."""
    return REASONS.get(operator, "") if domain == "" else DOMAINS.get(domain, "")
