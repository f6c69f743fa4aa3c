"""Operators of the standard that have no place in the operator set, and why."""

from __future__ import annotations

from tpuconvert.frontends.registry import registry

_REASONS = {
    "random numbers": (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
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
    "the number of distinct values depends on the data": ("Unique",),
}
REASONS = {operator: reason for reason, operators in _REASONS.items() for operator in operators}
"""Per operator of the default domain, why it cannot be converted."""

registry("onnx").refuse(REASONS)

DOMAINS = {
    "ai.onnx.preview.training": "training",
    "ai.onnx.training": "training",
    "ai.onnx.ml": "an operator of classical machine learning",
    "ai.onnx.preview": "a preview operator, whose meaning may still change",
}
"""Per domain of the standard, why none of its operators can be converted."""


def reason(operator: str, domain: str) -> str:
    """Why an operator cannot be converted, where that is known; else an empty text."""
    return REASONS.get(operator, "") if domain == "" else DOMAINS.get(domain, "")
