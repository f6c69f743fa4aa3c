"""``tpuconvert.prepack``: a file with the packed weights of a model, with which sessions open in a few milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tpuconvert.plugins import load_plugins
from tpuconvert.results import Result
from tpuconvert.runtime import prepacking
from tpuconvert.runtime.native.loader import chosen_isa
from tpuconvert.text_format import bytes_text


@dataclass(frozen=True, repr=False)
class PackedWeights(Result):
    """A file with packed weights.

    Args:
        model: the model file.
        file: the file with its packed weights.
        isa: the instruction set for which they are packed.
        size: size of the file in bytes.

    """

    model: str
    file: str
    isa: str
    size: int

    def lines(self) -> list[str]:
        """Return the name of the file, its size and the instruction set."""
        return [f"wrote {self.file}: {bytes_text(self.size)} of packed weights of {self.model} for {self.isa}"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``prepack --json`` prints them."""
        return dict(vars(self))


def prepack(model: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> PackedWeights:
    """Write the packed weights of a model, so that sessions open it in a few milliseconds.

    ``Session(model, packed=FILE)`` then takes plan and weights from the file. It is valid for this model file, this
    build of the engine, and the instruction set of this processor or of ``TPUCONVERT_ISA``. For others, a session
    ignores it with a ``PackedWeightsWarning``. Results are the same with and without it.

    Args:
        model: a ``.tpum`` file with static shapes, whose nodes all have native kernels.
        output: the file to write; None for the name of the model with ``.packed`` appended.

    Raises:
        UsageError: the model has symbolic extents, states, or nodes without a native kernel; or the system is Windows.
        MissingExtraError: the engine was not built.
        CorruptInputError: the model file is damaged.

    Example:
        >>> tc.convert("digits.onnx").save("digits.tpum")
        >>> packed = tc.prepack("digits.tpum")
        >>> packed.file
        'digits.tpum.packed'
        >>> tc.Session("digits.tpum", packed=packed.file).backend
        'native'

    """
    load_plugins()
    path = prepacking.prepack(model, output)
    return PackedWeights(os.fspath(model), os.fspath(path), chosen_isa(), path.stat().st_size)
