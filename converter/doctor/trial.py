"""Comparison of the variants of a preprocessing: by labels, or by the confidence of a classifier.

With labels, a variant is better if it classifies more of the same samples right than the present preprocessing does, by
a sign test (McNemar, exact), or has a smaller cross entropy, by a paired t-test. Both are corrected for the number of
variants (Bonferroni), so that for correct preprocessing the probability of a false alarm is at most ``FALSE_ALARMS``.

Without labels two facts are used. A classifier whose result does not depend on the sample carries no information about
it: the mutual information of sample and class is near 0. And among variants that only reorder the same values, the one
    with the smallest entropy is most likely correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpuconvert.doctor.variants import TrialSamples, Variant
from tpuconvert.samples.finding import Finding
from tpuconvert.schema.types import Array

FALSE_ALARMS = 0.01
"""Largest probability that a comparison with labels reports correct preprocessing as wrong."""

LEAST_PROBABILITY = 1e-3
"""Lower bound of probabilities in the cross entropy, so that a single confident mistake does not dominate the mean."""

SCREENED = 48
"""Number of samples on which all variants are tried. With labels, the ``FINALISTS`` best are tried on all samples."""

FINALISTS = 5

FEWEST = 16
"""Smallest number of samples for a warning."""

COLLAPSED = 0.2
"""Warn if the mutual information is below this share of the best variant's. The share is small, because a wrong
variant may have more information than correct preprocessing: a value range that is far too large makes a classifier of
two classes certain, with up to three times the information."""

MORE_CERTAIN = 0.9
"""A variant with the same values is more likely correct if its entropy is below this share of the entropy with the
present preprocessing."""

Predict = Callable[[Array], Array]
"""Function that computes scores [N, classes] of samples in the type of the model input."""


@dataclass(frozen=True)
class VariantResult:
    """Results of one variant; ``right`` is the number of correctly classified samples, None without labels."""

    name: str
    advice: str
    samples: int
    right: int | None
    entropy: float
    information: float


@dataclass(frozen=True)
class Trial:
    """The present preprocessing, the variants (best first), and the warnings."""

    current: VariantResult
    variants: list[VariantResult]
    findings: list[Finding]


@dataclass(frozen=True)
class _Scores:
    """Class probabilities [N, classes] of the samples, and their labels [N] if there are any."""

    probabilities: Array
    labels: Array | None

    @property
    def right(self) -> Array:
        """Boolean mask [N] of the correctly classified samples."""
        assert self.labels is not None
        right: Array = self.probabilities.argmax(axis=1) == self.labels
        return right

    @property
    def loss(self) -> Array:
        """Cross entropy per sample, at most ``-log(LEAST_PROBABILITY)``."""
        assert self.labels is not None
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        loss: Array = -np.log(np.maximum(own, LEAST_PROBABILITY))
        return loss

    @property
    def entropies(self) -> Array:
        """Entropy of the predicted classes per sample."""
        return _entropy(self.probabilities)

    @property
    def information(self) -> float:
        """Mutual information of sample and predicted class, in nats."""
        return float(_entropy(self.probabilities.mean(axis=0))) - float(self.entropies.mean())

    def first(self, count: int) -> _Scores:
        """Return the scores of the first ``count`` samples."""
        return _Scores(self.probabilities[:count], None if self.labels is None else self.labels[:count])

    def result(self, name: str, advice: str) -> VariantResult:
        """Return the results of the variant with this name and advice."""
        right = None if self.labels is None else int(self.right.sum())
        return VariantResult(
            name, advice, len(self.probabilities), right, float(self.entropies.mean()), max(0.0, self.information)
        )


def compare_variants(samples: TrialSamples, predict: Predict, labels: Array | None, rule: str) -> Trial:
    """Run the present preprocessing and all variants.

    Args:
        samples: the samples.
        predict: the model.
        labels: class index of each sample along the output's class axis; None without labels.
        rule: the present preprocessing as text.

    """
    count = len(samples.current)
    order = np.random.default_rng(0).permutation(count)  # samples are often sorted by class
    ordered = None if labels is None else labels[order]
    current = _Scores(probabilities(predict(samples.to_input_dtype(samples.current[order]))), ordered)
    variants = list(samples.variants())
    screened = min(count, SCREENED)
    tried: list[tuple[Variant, _Scores]] = []
    for variant in variants:
        x = variant.make(order[:screened])
        if not np.allclose(x, samples.current[order[:screened]], rtol=1e-3, atol=1e-3 * float(np.ptp(x) or 1)):
            tried.append((variant, _run(samples, predict, x, ordered)))
    now = current.first(screened)
    if labels is None:
        findings = _without_labels(current, now, tried)
        tried.sort(key=lambda item: float(item[1].entropies.mean()))
    else:
        tried.sort(key=lambda item: (-int(item[1].right.sum()), float(item[1].loss.mean())))
        if count > screened:
            rest = order[screened:]
            tried = [
                (variant, _join(scores, _run(samples, predict, variant.make(rest), current.labels, screened)))
                for variant, scores in tried[:FINALISTS]
            ] + tried[FINALISTS:]
        findings = _with_labels(current, tried, len(variants))
    results = [scores.result(variant.name, variant.advice) for variant, scores in tried]
    return Trial(current.result(rule, ""), results, findings)


def _run(samples: TrialSamples, predict: Predict, x: Array, labels: Array | None, start: int = 0) -> _Scores:
    own = None if labels is None else labels[start : start + len(x)]
    return _Scores(probabilities(predict(samples.to_input_dtype(x))), own)


def _join(first: _Scores, second: _Scores) -> _Scores:
    labels = None
    if first.labels is not None and second.labels is not None:
        labels = np.concatenate([first.labels, second.labels])
    return _Scores(np.concatenate([first.probabilities, second.probabilities]), labels)


def _with_labels(current: _Scores, tried: list[tuple[Variant, _Scores]], compared: int) -> list[Finding]:
    """Report a variant that is significantly better, or otherwise an accuracy that is not better than chance."""
    right, labels = current.right, current.labels
    assert labels is not None
    count = len(right)
    if count < FEWEST:
        return []
    level = FALSE_ALARMS / (2 * max(compared, 1))
    best = max((float(scores.right.mean()) for _, scores in tried), default=0.0)
    shifted = _shifted_labels(current, level, best)
    if shifted is not None:
        return [shifted]
    for variant, scores in sorted(tried, key=lambda item: (-item[1].right.sum(), item[1].loss.mean())):
        used = len(scores.right)
        gained = int((scores.right & ~right[:used]).sum())
        lost = int((right[:used] & ~scores.right).sum())
        if gained <= lost:
            continue
        if min(sign_test(gained, lost), paired_test(current.loss[:used] - scores.loss)) < level:
            seen = f"{_accuracy(right[:used])} as the samples are, {_accuracy(scores.right)} with {variant.name}"
            return [Finding("better-variant", seen, "no variant to classify significantly better", variant.advice)]
    frequent = float(np.bincount(labels).max()) / count
    if binomial_tail(count, int(right.sum()), frequent) > 0.01:
        seen = f"{_accuracy(right)} on labeled samples, {frequent:.1%} for always naming the most frequent class"
        advice = "check preprocessing, labels and the output; no variant that was tried is better"
        return [Finding("chance", seen, "more than chance", advice)]
    return []


def _shifted_labels(current: _Scores, level: float, best: float) -> Finding | None:
    """Report labels that are off by one, as for models with an additional background class 0.

    ``best`` is the accuracy of the best variant. The shifted labels must give a higher one.
    """
    labels, right = current.labels, current.right
    assert labels is not None
    for shift in (1, -1):
        moved = _Scores(current.probabilities, np.clip(labels + shift, 0, current.probabilities.shape[1] - 1))
        gained, lost = int((moved.right & ~right).sum()), int((right & ~moved.right).sum())
        if moved.right.mean() > best and gained > 2 * lost and sign_test(gained, lost) < level:
            seen = f"{_accuracy(right)} with the labels as they are, {_accuracy(moved.right)} with {shift:+d} added"
            advice = f"add {shift:+d} to the labels"
            return Finding("shifted-labels", seen, "labels that count classes as the output does", advice)
    return None


def _accuracy(right: Array) -> str:
    return f"top-1 {right.mean():.1%} of {len(right)}"


def _without_labels(current: _Scores, now: _Scores, tried: list[tuple[Variant, _Scores]]) -> list[Finding]:
    if len(now.probabilities) < FEWEST or not tried:
        return []
    level = FALSE_ALARMS / len(tried)
    own = now.entropies
    certain: list[tuple[float, Variant]] = []
    for variant, scores in tried:
        share = float(scores.entropies.mean()) / max(float(own.mean()), 1e-9)
        if not variant.same_values or share > MORE_CERTAIN or scores.information < now.information:
            continue
        if paired_test(own - scores.entropies) < level:
            certain.append((share, variant))
    if certain:
        share, variant = min(certain, key=lambda item: item[0])
        seen = f"the entropy of the predictions is {1 / max(share, 1e-3):.3g} times that with {variant.name}"
        return [Finding("uncertain", seen, "the most certain predictions with right samples", variant.advice)]
    best = max(tried, key=lambda item: item[1].information)
    if now.information < COLLAPSED * best[1].information:
        seen = (
            f"predictions tell {max(0.0, now.information):.2f} nats about a sample, "
            f"{best[1].information:.2f} with {best[0].name}"
        )
        return [Finding("collapsed", seen, "predictions that depend on the sample", f"try {best[0].advice}")]
    return []


def probabilities(scores: Array) -> Array:
    """Convert scores to probabilities: unchanged if they sum to about 1, otherwise by softmax. NaN becomes -1e30."""
    x = np.nan_to_num(scores.astype(np.float64), nan=-1e30, posinf=1e30, neginf=-1e30)
    if x.min(initial=0.0) >= -1e-6 and np.abs(x.sum(axis=1) - 1).max(initial=0.0) < 0.1:
        x = np.maximum(x, 1e-9)
    else:
        x = np.exp(np.maximum(x - x.max(axis=1, keepdims=True), -700))
    normalized: Array = x / x.sum(axis=1, keepdims=True)
    return normalized


def _entropy(probabilities: Array) -> Array:
    entropy: Array = -(probabilities * np.log(np.maximum(probabilities, 1e-30))).sum(axis=-1)
    return entropy


def sign_test(gained: int, lost: int) -> float:
    """p-value of the sign test: probability of at least ``gained`` gains if gains and losses are equally likely."""
    return binomial_tail(gained + lost, gained, 0.5) if gained + lost else 1.0


def binomial_tail(count: int, least: int, share: float) -> float:
    """Probability of at least ``least`` successes in ``count`` trials with success probability ``share``."""
    if least <= 0:
        return 1.0
    if share >= 1.0:
        return 1.0
    logs = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        + k * math.log(share) + (count - k) * math.log1p(-share)
        for k in range(least, count + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def paired_test(difference: Array) -> float:
    """p-value of the one-sided paired t-test, in normal approximation: probability of at least this mean if it is 0."""
    deviation = float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
    mean = float(difference.mean())
    if deviation <= 1e-12:
        return 1.0
    return 0.5 * math.erfc(mean / deviation * math.sqrt(len(difference) / 2))
