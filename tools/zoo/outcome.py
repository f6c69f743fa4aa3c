"""Outcomes of the conversions of a zoo, and the log in which they are stored."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.zoo.files import Export

OK = "ok"
NUMBER = "ok with a number"
EXPORTER = "exporter refuses"
REFUSED = "refused"
DIFFERENT = "float differs"
INTERNAL = "internal error"
OUTCOMES = {
    OK: "converted; the float model agrees with the source",
    NUMBER: "the same with a static batch (`--input-shapes`), which an operator requires",
    EXPORTER: "PyTorch wrote no file",
    REFUSED: "rejected by tpuconvert, with a reason",
    DIFFERENT: "the float model differs from the source",
    INTERNAL: "a bug in tpuconvert",
}
"""Outcome of a model -> its meaning."""

MIN_COSINE = 0.99
"""Smallest cosine similarity of INT8 outputs that is expected."""

MIN_KEPT = 0.8
"""Smallest share of a detector's boxes that its INT8 model is expected to find."""

MIN_SHARE = 0.5
"""Smallest share of the multiply-accumulates in integers of a model that counts as INT8."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of the conversion of one exported model.

    Attributes:
        export: the export.
        outcome: key of OUTCOMES.
        stage: step that failed: ``check``, ``float``, ``verify``, ``run float``, ``int8`` or ``run int8``.
        reason: reason for the failure; for ``ok with a number`` the operators that need a fixed batch size.
        difference: largest difference of the float model's outputs from ONNX Runtime's, as a share of their range.
        cosine: smallest cosine of an INT8 output with ONNX Runtime's.
        centered: the same after the mean of the samples is subtracted from each element; None for equal outputs.
        sqnr: smallest signal-to-quantization-noise ratio of an output, in dB.
        peer: cosine of the model that ONNX Runtime quantizes with the same samples; None if it does not.
        share: share of the multiply-accumulates that are computed in integers, for symbolic extents of 1; None
            without multiply-accumulates.
        source_nodes: number of nodes of the source's main graph.
        float_nodes: number of nodes of the float model.
        int8_nodes: number of nodes of the INT8 model.
        float_seconds: CPU time of the float conversion.
        int8_seconds: CPU time of the INT8 conversion with its calibration.
        seconds: total time.
        kept: share of ONNX Runtime's boxes that the INT8 model finds, for a detector that selects its boxes: it has no
            ``cosine``, ``centered`` and ``sqnr``, because the numbers of boxes differ.
    """

    export: Export
    outcome: str
    stage: str = ""
    reason: str = ""
    difference: float | None = None
    cosine: float | None = None
    centered: float | None = None
    sqnr: float | None = None
    peer: float | None = None
    share: float | None = None
    source_nodes: int | None = None
    float_nodes: int | None = None
    int8_nodes: int | None = None
    float_seconds: float | None = None
    int8_seconds: float | None = None
    seconds: float = 0.0
    kept: float | None = None

    def __str__(self) -> str:
        parts = [self.export.name, self.outcome, self.stage, self.reason]
        if self.cosine is not None:
            parts.append(f"cosine {self.cosine:.4f}, {self.sqnr:.1f} dB")
        if self.kept is not None:
            parts.append(f"{100 * self.kept:.1f} % of the boxes")
        if self.peer is not None:
            parts.append(f"ONNX Runtime {self.peer:.4f}")
        return ": ".join(filter(None, parts)) + f" ({self.seconds:.1f} s)"

    def to_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> "Outcome":
        """Read one line of JSON."""
        entry = json.loads(line)
        return Outcome(Export(**entry.pop("export")), **entry)


def read_log(log: Path | None) -> dict[Export, Outcome]:
    """Return the outcomes of an earlier run. A model that was started but has no outcome crashed the process."""
    outcomes: dict[Export, Outcome] = {}
    if log is None or not log.exists():
        return outcomes
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith('{"begun"'):
            export = Export(**json.loads(line)["begun"])
            outcomes[export] = Outcome(export, INTERNAL, reason="the process ended")
        else:
            outcome = Outcome.from_line(line)
            outcomes[outcome.export] = outcome
    return outcomes
