"""Share of right lines of a text recognizer, and the errors of its characters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuconvert.evaluation.classes import Labeled
from tpuconvert.evaluation.metric import Metric, Sample, Setup, evaluation_metric
from tpuconvert.evaluation.texts import load_texts
from tpuconvert.outputs.head import DecodedImage, Text, find_head
from tpuconvert.outputs.interpretation import read_text
from tpuconvert.outputs.labels import ClassNames, labels_of_metadata
from tpuconvert.schema.errors import UsageError


@evaluation_metric("text")
class TextLines(Metric):
    """Share of images whose text is right, and ``cer``: edits per character. Spaces at the ends do not count."""

    agreement_names = ("changed_text",)

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(setup, name)
        self.head = find_head(setup.decode if isinstance(setup.decode, str) else "ctc")
        self.rule = setup.image_rule()
        characters = ClassNames.of(setup.characters)
        self.names = characters if characters.is_given else labels_of_metadata(setup.model.metadata, None)
        if not self.names.names:
            raise UsageError(
                "metric 'text' without the characters of the model",
                file=setup.model.graph.file,
                hint="--characters FILE: one per line, in the order of the classes",
            )
        self.right = self.samples = self.edits = self.length = self.changed = self.compared = 0

    @classmethod
    def value_names(cls, name: str) -> tuple[str, ...]:
        """Return the keys of ``values()``."""
        return name, "cer"

    def load(self, samples: Any, labels: Any) -> Labeled:
        """Load images with the text in each."""
        return load_texts(samples, labels)

    def predict(self, sample: Sample) -> str:
        """Return the text in the image."""
        decoded = self.head.decode(sample.outputs, DecodedImage(self.rule, sample.size()))
        if not isinstance(decoded, Text):
            raise UsageError(f"head '{self.head.name}' reads no text", hint="--decode ctc")
        return read_text(decoded, self.names).text.strip()

    def add(self, prediction: str, label: str) -> None:
        """Count the edits of one line."""
        label = label.strip()
        self.right += prediction == label
        self.samples += 1
        self.edits += edit_distance(prediction, label)
        self.length += len(label)

    def values(self) -> dict[str, float]:
        """Return the share of right lines, and the edits per character of the labels."""
        if not self.length:
            raise UsageError("the labels have no characters", hint="give the text in each image")
        return {self.name: self.right / self.samples, "cer": self.edits / self.length}

    def right_samples(self) -> dict[str, int]:
        """Return the number of right lines."""
        return {self.name: self.right}

    def compare(self, prediction: str, reference: str) -> None:
        """Count the lines that differ."""
        self.changed += prediction != reference
        self.compared += 1

    def agreement(self) -> dict[str, float]:
        """Return the share of lines that differ."""
        return {"changed_text": self.changed / self.compared}


def edit_distance(first: str, second: str) -> int:
    """Return the smallest number of insertions, deletions and replacements between two strings (Levenshtein)."""
    codes = np.array([ord(character) for character in second], np.int64)
    positions = np.arange(len(second) + 1)
    row = positions.copy()
    for number, character in enumerate(first, 1):
        replaced = row[:-1] + (codes != ord(character))
        best = np.minimum(row[1:] + 1, replaced)
        row = np.minimum.accumulate(np.concatenate([[number], best]) - positions) + positions
    return int(row[-1])
