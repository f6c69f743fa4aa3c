"""Inputs whose extents the file leaves open: -1 in the signature, 1 in the shape that the conversion takes."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.schema.errors import INVALID_NODE, TOO_LARGE, UNKNOWN_SHAPE


@dataclass(frozen=True)
class OpenInput:
    """Model input whose signature has open extents (-1), and the shape that the file has instead.

    Args:
        name: of the input.
        signature: of the file; an open extent is -1.
        shape: taken for the conversion.
    """

    name: str
    signature: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def hint(self) -> str:
        """Next step for a problem that the shape may cause."""
        taken = f"input '{self.name}' has the open shape {list(self.signature)}, taken as {list(self.shape)}"
        return f"{taken}: state its extents with --input-shapes {self.name}=..."

    @property
    def note(self) -> str:
        """Note on a model that was converted with this shape."""
        fixed = [
            f"axis {axis} is fixed to {self.shape[axis]}"
            for axis, extent in enumerate(self.signature)
            if extent < 0 and axis < len(self.shape)
        ]
        return (
            f"input '{self.name}' has the open shape {list(self.signature)}: {', '.join(fixed)}; "
            f"other extents with --input-shapes {self.name}=..."
        )


OF_SHAPES = (INVALID_NODE, UNKNOWN_SHAPE, TOO_LARGE)
"""Kinds of problems that a wrong extent of an input may cause."""
