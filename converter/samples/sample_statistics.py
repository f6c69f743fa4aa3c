"""Statistics of the samples themselves: constant and equal samples, values that never change, saturated integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tpuconvert.samples.finding import Finding
from tpuconvert.schema.graph.graph import Port
from tpuconvert.schema.system.content_digest import digest_of
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

CONSTANT_SHARE = 0.05
"""Largest accepted share of constant samples. A few occur in correct data: a black video frame, silence."""

EQUAL_SHARE = 0.05
"""Largest accepted share of samples that are equal to an earlier sample."""

DEAD_SHARE = 0.5
"""Largest accepted share of elements that are equal in all samples. Images of objects on a plain background have such
pixels at the edges: 45 % of the pixels of MNIST."""

SATURATED_SHARE = 0.5
"""Largest accepted share of integers at the limits of their type. Many elements at one limit are common: 45 % of the
pixels of MNIST are 0 or 255. A larger share at both limits means that a scale is far too large."""

LEAST_MAGNITUDE, MOST_MAGNITUDE = 0.1, 1000.0
"""Accepted limits of the largest magnitude of an image input. Common normalizations give 0.5 to 255. Pixels that were
divided by 255 twice give 0.004."""

UNITS = 30.0
"""Largest ratio of the magnitude of a row or column of an image to the median of them all, and of its channels."""

MOST_CHANNELS = 4
"""Largest number of channels of an image."""

NAMED = 3
"""Number of samples that a warning names."""


class SampleStatistics:
    """Running statistics of samples. Apart from a digest per sample, memory does not depend on their number.

    Statistics of consecutive parts of the samples can be joined by ``extend``.

    Args:
        ports: the model's inputs.
        names: file names of the samples, in order; empty if the samples are not files.

    """

    def __init__(self, ports: Sequence[Port], names: Sequence[str] = ()) -> None:
        self._ports = {port.name: port for port in ports}
        self._names = names
        self._digests: list[bytes] = []
        self._varying: set[str] = set()  # inputs whose shape varies; their limits are computed from the last shape
        self._constant: dict[str, list[int]] = {port.name: [] for port in ports}
        self._low: dict[str, Array] = {}
        self._high: dict[str, Array] = {}
        self._at_limits: dict[str, Array] = {port.name: np.zeros(2) for port in ports}
        self._elements: dict[str, int] = dict.fromkeys(self._ports, 0)
        self.count = 0

    def watch(self, feeds: Iterable[Mapping[str, Array]]) -> Iterator[Mapping[str, Array]]:
        """Yield the feeds unchanged and add each to the statistics."""
        for feed in feeds:
            self.add(feed)
            yield feed

    def add(self, feed: Mapping[str, Array]) -> None:
        """Add one batch to the statistics."""
        arrays = {name: np.asarray(feed[name]) for name in self._ports if name in feed}
        batched = all(array.ndim for array in arrays.values()) and len({len(array) for array in arrays.values()}) == 1
        for index in range(len(next(iter(arrays.values()))) if batched and arrays else 1):
            self._add_sample({name: array[index : index + 1] if batched else array for name, array in arrays.items()})

    def _add_sample(self, sample: dict[str, Array]) -> None:
        digest = digest_of(b"".join(np.ascontiguousarray(array).tobytes() for array in sample.values()))
        self._digests.append(digest)
        for name, array in sample.items():
            if array.size == 0:
                continue
            low, high = array.min(), array.max()
            if array.size > 1 and low == high:
                self._constant[name].append(self.count)
            previous = self._low.get(name)
            if previous is None or previous.shape != array.shape:
                if previous is not None:
                    self._varying.add(name)
                self._low[name], self._high[name] = array.copy(), array.copy()
            else:
                np.minimum(self._low[name], array, out=self._low[name])
                np.maximum(self._high[name], array, out=self._high[name])
            port = self._ports[name]
            if port.quant is not None and array.dtype.kind in "iu":
                limits = np.iinfo(array.dtype)
                self._at_limits[name] += ((array == limits.min).sum(), (array == limits.max).sum())
                self._elements[name] += array.size
        self.count += 1

    def extend(self, later: SampleStatistics) -> None:
        """Add the statistics of the samples that follow. The findings then equal one run over all samples."""
        self._digests += later._digests
        for name in self._ports:
            self._constant[name] += [self.count + index for index in later._constant[name]]
            self._at_limits[name] += later._at_limits[name]
            self._elements[name] += later._elements[name]
            if name not in later._low:
                continue
            if name in self._low and name not in later._varying and self._low[name].shape == later._low[name].shape:
                self._low[name] = np.minimum(self._low[name], later._low[name])
                self._high[name] = np.maximum(self._high[name], later._high[name])
            else:
                if name in self._low:
                    self._varying.add(name)
                self._low[name], self._high[name] = later._low[name], later._high[name]
        self._varying |= later._varying
        self.count += later.count

    def findings(self) -> list[Finding]:
        """Return the warnings; call after all samples were added."""
        findings = self._equal_samples()
        for name in self._low:
            findings += self._constant_samples(name) or self._dead_elements(name)
            findings += self._saturation(name) + self._implausible_range(name)
        return findings

    def name(self, index: int) -> str:
        """File name or number of a sample."""
        return self._names[index] if index < len(self._names) else f"sample {index}"

    def _sample_names(self, indices: Sequence[int]) -> str:
        more = f" and {len(indices) - NAMED} more" if len(indices) > NAMED else ""
        return ", ".join(self.name(index) for index in indices[:NAMED]) + more

    def _equal_samples(self) -> list[Finding]:
        first_index: dict[bytes, int] = {}
        first_of = [first_index.setdefault(digest, index) for index, digest in enumerate(self._digests)]
        equal = [(first, index) for index, first in enumerate(first_of) if first != index]
        if self.count < 2 or len(equal) <= EQUAL_SHARE * self.count:
            return []
        first, second = equal[0]
        seen = f"{len(equal)} of {several(self.count, 'sample')} equal an earlier one"
        pair = f"{self.name(second)} equals {self.name(first)}"
        return [Finding("equal-samples", f"{seen} ({pair})", "different samples", "leave the copies out")]

    def _constant_samples(self, name: str) -> list[Finding]:
        indices = self._constant[name]
        if len(self._ports) > 1 and not is_image(self._ports[name].shape):
            return []  # may be constant by design: an initial state of zeros, a threshold
        if len(indices) <= CONSTANT_SHARE * self.count:
            return []
        seen = f"input '{name}' has one value throughout {len(indices)} of {several(self.count, 'sample')}"
        advice = "look at what reads them, or leave them out"
        return [Finding("constant-samples", f"{seen} ({self._sample_names(indices)})", "samples with content", advice)]

    def _dead_elements(self, name: str) -> list[Finding]:
        """Report elements that are equal in all samples: the whole input, a color channel, or too many elements."""
        if self.count < 2:
            return []
        fixed = self._low[name] == self._high[name]
        if fixed.all():
            seen = f"input '{name}' is the same in all {self.count} samples"
            return [Finding("dead-input", seen, "values that differ", "give samples of this input too")]
        axis = channel_axis(fixed.shape)
        if axis is not None:
            dead = np.flatnonzero(fixed.all(axis=tuple(set(range(fixed.ndim)) - {axis})))
            if dead.size:
                seen = f"channel {', '.join(map(str, dead))} of input '{name}' is the same in all samples"
                advice = "look at the channels of the samples: color, layout"
                return [Finding("dead-channel", seen, "values that differ in every channel", advice)]
        share = float(fixed.mean())
        if share <= DEAD_SHARE or _has_indices(self._ports[name]):
            return []
        seen = f"{share:.0%} of the elements of input '{name}' are the same in all {self.count} samples"
        return [Finding("dead-elements", seen, "most elements to differ", "give more samples, or look at their layout")]

    def _saturation(self, name: str) -> list[Finding]:
        if not self._elements[name]:
            return []
        low, high = self._at_limits[name] / self._elements[name]
        # require 2 % at each limit: the pixels of a plain background are all at the same limit
        if low + high <= SATURATED_SHARE or min(low, high) < 0.02:
            return []
        quant = self._ports[name].quant
        assert quant is not None
        info = np.iinfo(np.dtype(self._ports[name].dtype))
        lowest, highest = (float(quant.dequantize(np.array([limit]))[0]) for limit in (info.min, info.max))
        seen = f"{low + high:.0%} of input '{name}' are at the limits {info.min} and {info.max} of its integers"
        expected = f"values from {lowest:.4g} to {highest:.4g}, as the model file states"
        return [Finding("saturated-input", seen, expected, "correct --preprocess scale and mean")]

    def _implausible_range(self, name: str) -> list[Finding]:
        """Report a largest magnitude that no common normalization of images gives."""
        port = self._ports[name]
        if port.quant is not None or not is_image(port.shape) or np.dtype(port.dtype).kind != "f":
            return []
        largest = float(max(-self._low[name].min(), self._high[name].max()))
        if largest == 0.0 or LEAST_MAGNITUDE <= largest <= MOST_MAGNITUDE or self._has_units(name):
            return []
        seen = f"values of image input '{name}' have magnitudes up to {largest:.4g}"
        advice = f"try a {'smaller' if largest > 1 else 'larger'} --preprocess scale; is it applied twice?"
        return [Finding("implausible-range", seen, "pixels 0..255, or normalized to about 1", advice)]

    def _has_units(self, name: str) -> bool:
        """Return True if the indices of an axis have magnitudes of features in different units, unlike pixels."""
        magnitudes = np.maximum(np.abs(self._low[name]), np.abs(self._high[name]))
        for axis in range(1, magnitudes.ndim):
            others = tuple(index for index in range(magnitudes.ndim) if index != axis)
            largest = magnitudes.max(axis=others)
            usual = float(np.median(largest) if len(largest) > MOST_CHANNELS else largest.min())
            if usual > 0.0 and largest.max() > UNITS * usual:
                return True
        return False


def _has_indices(port: Port) -> bool:
    """Return True for an input of indices: padding after short texts is equal in all samples."""
    return port.quant is None and port.dtype.removeprefix("u") in ("int16", "int32", "int64")


def is_image(shape: Sequence[int | str]) -> bool:
    """Return True for an input of images with 3 channels, or with one and at least 8 rows and columns."""
    if channel_axis(shape) is not None:
        return True
    plane = [extent for extent in shape[1:] if isinstance(extent, int) and extent != 1]
    return len(plane) == 2 and min(plane) >= 8


def channel_axis(shape: Sequence[int | str]) -> int | None:
    """Axis of the channels of an image input with 3 channels; None for everything else."""
    if len(shape) != 4:
        return None
    if shape[1] == 3 and shape[3] != 3:
        return 1
    return 3 if shape[3] == 3 else None
