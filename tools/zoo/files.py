"""The folder of a zoo: exported models, input samples, and reasons for refused exports."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

EXPORTERS = {"torchscript": (11, 13, 15, 17, 20), "dynamo": (18, 19, 20, 21, 22, 23)}
"""Exporters of PyTorch, and the opsets to export with each."""

VARIANTS = {
    "float16": "an export whose weights are stored as FLOAT16",
    "bfloat16": "an export whose weights are stored as BFLOAT16",
    "half": "a module that computes in FLOAT16 (`module.half()`)",
    "onnxruntime": "quantized by ONNX Runtime's `quantize_static`",
    "nncf": "quantized by NNCF's `quantize`",
    "torch_qat": "quantized by PyTorch's `prepare_qat_fx`: fake quantization nodes",
}
"""Further sources that are made from some networks, and what they are."""

QUANTIZED = ("onnxruntime", "nncf", "torch_qat")
"""Variants with QuantizeLinear and DequantizeLinear."""

CALIBRATION = 8
"""Number of samples that calibrate. The following ones are compared."""

BATCHES = ("fixed", "open")
"""Extent of the batch axis: 1, or symbolic."""

_NAME = re.compile(r"(?P<network>\w+)-(?P<exporter>\w+)-(?P<opset>\d+)-(?P<batch>\w+)\.(onnx|refused)")


@dataclass(frozen=True, order=True)
class Export:
    """One export of a network.

    Attributes:
        network: name of the network.
        exporter: key of EXPORTERS or of VARIANTS.
        opset: operator set version of the model.
        batch: one of BATCHES.
    """

    network: str
    exporter: str
    opset: int
    batch: str

    @property
    def name(self) -> str:
        """Stem of the file names."""
        return f"{self.network}-{self.exporter}-{self.opset}-{self.batch}"

    @property
    def is_quantized(self) -> bool:
        """Return True if the model has the integers of another quantizer."""
        return self.exporter in QUANTIZED

    def path(self, folder: Path) -> Path:
        """Return the path of the model."""
        return folder / f"{self.name}.onnx"

    def refusal_path(self, folder: Path) -> Path:
        """Return the path of the text file with the reason for a refusal."""
        return folder / f"{self.name}.refused"

    def is_made(self, folder: Path) -> bool:
        """Return True if the export was tried before."""
        return self.path(folder).exists() or self.refusal_path(folder).exists()

    def refusal(self, folder: Path) -> str:
        """Return the reason why the exporter refused the network; empty if it did not."""
        path = self.refusal_path(folder)
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


@dataclass(frozen=True)
class Made:
    """The networks of a zoo.

    Attributes:
        versions: versions of the packages with which they were exported.
        families: network -> name of its family.
        packages: network -> package that defines it; without the networks of ``tools/zoo/networks``.
    """

    versions: dict[str, str]
    families: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the description into the folder."""
        (folder / "made.json").write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> "Made":
        """Return the description stored in the folder."""
        return Made(**json.loads((folder / "made.json").read_text(encoding="utf-8")))


def exports(folder: Path) -> Iterator[Export]:
    """Yield every export in a folder, including refused ones, sorted."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    yield from sorted(
        Export(match["network"], match["exporter"], int(match["opset"]), match["batch"]) for match in matches if match
    )


def save_samples(folder: Path, network: str, samples: dict[str, Array]) -> None:
    """Write the samples of a network. The first axis of each array counts the samples; each sample has batch 1."""
    with (folder / f"{network}.npz").open("wb") as stream:
        np.savez(stream, **samples)  # type: ignore[arg-type]  # its annotation takes the names for its options


def load_samples(folder: Path, network: str) -> list[dict[str, Array]]:
    """Return the samples of a network."""
    with np.load(folder / f"{network}.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    count = len(next(iter(arrays.values())))
    return [{name: array[k] for name, array in arrays.items()} for k in range(count)]
