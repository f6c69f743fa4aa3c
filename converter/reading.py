"""How a TFLite file is read, where there is a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpuconvert.schema.errors import UsageError

STATE_MODES = ("reset", "ports")
ROUNDINGS = ("double", "single")


@dataclass(frozen=True)
class Reading:
    """What a user may choose about a TFLite file.

    Args:
        signature: key of the signature to convert; None for the only one.
        state: ``reset`` begins every run with the file's own state; ``ports`` makes state further inputs and outputs.
        keep_io_layout: whether inputs and outputs of four axes keep the file's NHWC, or become NCHW.
        tflite_rounding: of integers, ``double`` as the reference kernels do, ``single`` as engines that round once.

    """

    signature: str | None = None
    state: str = "reset"
    keep_io_layout: bool = True
    tflite_rounding: str = "double"

    def __post_init__(self) -> None:
        if self.state not in STATE_MODES:
            raise UsageError(f"state is '{self.state}'", hint=f"one of {', '.join(STATE_MODES)}")
        if self.tflite_rounding not in ROUNDINGS:
            raise UsageError(f"tflite_rounding is '{self.tflite_rounding}'", hint=f"one of {', '.join(ROUNDINGS)}")

    @property
    def layout(self) -> str:
        """The axis order of pictures at the model's border."""
        return "NHWC" if self.keep_io_layout else "NCHW"

    @property
    def is_as_stored(self) -> bool:
        """Whether inputs and outputs are those that an interpreter of the file has."""
        return self.signature is None and self.state == "reset" and self.keep_io_layout

    def arguments(self, source_format: str) -> dict[str, Any]:
        """The arguments of a frontend.

        Raises:
            UsageError: something was chosen that this format does not have.

        """
        if source_format == "tflite":
            return {
                "signature": self.signature,
                "state": self.state,
                "keep_io_layout": self.keep_io_layout,
                "rounding": self.tflite_rounding,
            }
        for name, is_chosen in (
            ("signature", self.signature is not None),
            ("state", self.state != "reset"),
            ("nchw-io", not self.keep_io_layout),
            ("tflite-rounding", self.tflite_rounding != "double"),
        ):
            if is_chosen:
                raise UsageError(f"--{name} belongs to TFLite models only", hint="leave it out")
        return {}
