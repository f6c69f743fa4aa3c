"""The exports of a decoder: its architecture, the exporter, and the inputs and symbolic extents that it has."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

FAMILIES = ("llama", "qwen3", "gemma", "phi", "smollm", "gpt2", "mixtral")
"""Architectures. Smollm is a Llama whose head has the weights of the embedding."""

TORCHSCRIPT, DYNAMIC, NAMED, GROUPED = "torchscript", "dynamic", "named", "gqa"
EXPORTERS = {
    TORCHSCRIPT: "`torch.onnx.export(dynamo=False)` with the names of optimum",
    DYNAMIC: "`torch.onnx.export(dynamo=True)` with `Dim.DYNAMIC`",
    NAMED: "`torch.onnx.export(dynamo=True)` with named extents",
    GROUPED: "`GroupQueryAttention`, as builders for ONNX Runtime write it",
}

MASK, POSITIONS = "attention_mask", "position_ids"
INPUTS = {"ids": (), "mask": (MASK,), "positions": (POSITIONS,), "both": (MASK, POSITIONS)}
"""Inputs of an export besides ``input_ids`` and the caches."""

BATCHES = ("one", "open")
CACHES = ("caches", "none")

PROMPT, STEPS, PADDING = 7, 8, 2
"""Numbers of tokens: of the prompt, of the generated ones, and of hidden ones at the start of the padded prompt."""


@dataclass(frozen=True, order=True)
class Case:
    """One export of a decoder.

    Attributes:
        family: one of FAMILIES.
        exporter: key of EXPORTERS.
        inputs: key of INPUTS.
        batch: one of BATCHES: the extent is 1, or symbolic.
        caches: one of CACHES: key-value caches are inputs and outputs, or there are none.
    """

    family: str
    exporter: str
    inputs: str
    batch: str
    caches: str

    @property
    def name(self) -> str:
        """Stem of the file names."""
        return "-".join((self.family, self.exporter, self.inputs, self.batch, self.caches))

    @property
    def has_caches(self) -> bool:
        """Return True if the caches are inputs and outputs."""
        return self.caches == CACHES[0]

    @property
    def other_inputs(self) -> tuple[str, ...]:
        """Names of the inputs besides the ids and the caches."""
        return INPUTS[self.inputs]

    def path(self, folder: Path) -> Path:
        """Return the path of the model."""
        return folder / f"{self.name}.onnx"

    def refusal_path(self, folder: Path) -> Path:
        """Return the path of the text file with the reason why the exporter refused the decoder."""
        return folder / f"{self.name}.refused"


def cases(families: tuple[str, ...] = FAMILIES, exporters: tuple[str, ...] = tuple(EXPORTERS)) -> Iterator[Case]:
    """Yield the exports of the matrix.

    Builders write a mask, an open batch and caches. The exporter with named extents writes the graphs of the one with
    ``Dim.DYNAMIC``, so that it has fewer cases.
    """
    for family, exporter in product(families, exporters):
        if exporter == GROUPED:
            yield from (Case(family, exporter, inputs, "open", "caches") for inputs in ("mask", "both"))
            continue
        for inputs, batch in product(INPUTS, BATCHES):
            if exporter != NAMED or (batch == "open" and inputs in ("ids", "both")):
                yield Case(family, exporter, inputs, batch, "caches")
        yield from (Case(family, exporter, inputs, "open", "none") for inputs in ("ids", "both"))


def cache_names(layers: int) -> tuple[list[str], list[str]]:
    """Names of the caches before and after a run, as optimum writes them."""
    parts = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    return [f"past_key_values.{part}" for part in parts], [f"present.{part}" for part in parts]
