"""Names of classes, from a file or from the metadata of the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuconvert.schema.errors import CorruptInputError, UsageError
from tpuconvert.schema.system.bounded_files import read_text
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.text.text_format import several

Labels = str | os.PathLike[str] | Iterable[str]
"""Name of a file of labels, or the labels in the order of the classes."""

TEXT_LABELS = (0, 1, 2)
"""Number of classes of a text network that its list of characters may lack."""

_FORMS = 'text with one label per line, a JSON list of labels, or a JSON object {"0": label, ...}'


class ClassNames:
    """Names of the classes of one model.

    Args:
        names: names in the order of the classes; empty if they are not known.
        file: file from which they were read, for messages.
        is_given: whether the user gave them, so that a wrong number of them is an error.

    """

    def __init__(self, names: Sequence[str] = (), file: str = "", is_given: bool = False) -> None:
        self.names, self.file, self.is_given = tuple(names), file, is_given

    @staticmethod
    def of(labels: Labels | None) -> ClassNames:
        """Return the names given by the user.

        Raises:
            UsageError: the file cannot be read.
            CorruptInputError: the file does not contain labels.

        """
        if labels is None:
            return ClassNames()
        if isinstance(labels, str | os.PathLike):
            return ClassNames(read_labels(Path(labels)), str(labels), is_given=True)
        return ClassNames([str(label) for label in labels], is_given=True)

    def fit(self, count: int | None) -> ClassNames:
        """Return these names for a model with ``count`` classes, None if the number is not known.

        Names of the metadata that do not fit are dropped.

        Raises:
            UsageError: the user gave another number of labels.

        """
        if not self.names or count is None or len(self.names) == count:
            return self
        if not self.is_given:
            return ClassNames()
        hint = "a label of the background may be missing or superfluous" if abs(len(self.names) - count) == 1 else ""
        message = f"{several(len(self.names), 'label')} for a model with {count} classes"
        raise UsageError(message, file=self.file, hint=hint or "give one label per class, in the order of the classes")

    def characters(self, count: int | None, blank: int) -> ClassNames:
        """Return these names for the classes of a text network, which has a blank class beside its characters.

        Lists of characters have the blank or not. The lists of PaddleOCR have neither the blank nor the space, which is
        the last class.

        Args:
            count: number of classes; None if it is not known.
            blank: number of the blank class.

        Raises:
            UsageError: the user gave another number of characters.

        """
        missing = (count or len(self.names)) - len(self.names)
        if not self.names or missing not in TEXT_LABELS:
            return self.fit(count)
        names = [*self.names, " "] if missing == max(TEXT_LABELS) else list(self.names)
        if missing:
            names.insert(blank, "")
        return ClassNames(names, self.file, self.is_given)

    def name(self, index: int) -> str:
        """Return the name of a class, or its number if no names are known.

        Raises:
            UsageError: there are names, but not of this class.

        """
        if not self.names:
            return f"class {index}"
        if not 0 <= index < len(self.names):
            message = f"the model found class {index}, which has no label: there are {len(self.names)}"
            raise UsageError(message, file=self.file, hint="give one label per class, in the order of the classes")
        return self.names[index]


def read_labels(path: Path) -> list[str]:
    """Read the labels of a file.

    Raises:
        UsageError: the file cannot be read.
        CorruptInputError: the file does not contain labels.

    """
    note_input(path)
    try:
        text = read_text(path, "utf-8-sig")
    except OSError as error:
        raise unreadable(error, path) from error
    except UnicodeDecodeError as error:
        raise CorruptInputError("not a text file", file=str(path), hint=f"expected {_FORMS}") from error
    if path.suffix.lower() == ".json":
        return _from_json(text, path)
    lines = [line.removesuffix("\r") for line in text.rstrip("\r\n").split("\n")]
    labels = [line if line == " " else line.strip() for line in lines]  # the space is a character of text networks
    while labels and not labels[-1]:
        del labels[-1]
    if not labels:
        raise CorruptInputError("no labels, the file is empty", file=str(path), hint=f"expected {_FORMS}")
    return labels


def _from_json(text: str, path: Path) -> list[str]:
    try:
        content = parse_json(text)
        if isinstance(content, Mapping):
            numbered = {int(key): value for key, value in content.items()}
            if sorted(numbered) != list(range(len(numbered))):
                raise ValueError(f"the keys are not 0 to {len(numbered) - 1}")
            content = [numbered[index] for index in range(len(numbered))]
        if not isinstance(content, list) or not content:
            raise ValueError("no list of labels")
        return [_label(item) for item in content]
    except ValueError as error:
        raise CorruptInputError(f"no labels ({error})", file=str(path), hint=f"expected {_FORMS}") from error


def _label(item: Any) -> str:
    """Return the label of an item: text, or a list whose last element is the text, as in the ImageNet index."""
    if isinstance(item, list) and item:
        item = item[-1]
    if not isinstance(item, str):
        raise ValueError(f"{json.dumps(item)[:40]} is not a label")
    return item


def labels_of_metadata(metadata: Mapping[str, Any], output: int | None) -> ClassNames:
    """Return the labels that a source stored for the model, or for an output.

    Args:
        metadata: metadata of the model.
        output: number of the output; with None, labels of the only output that has labels.

    """
    of_model = metadata.get("labels")
    if isinstance(of_model, list) and of_model and all(isinstance(item, str) for item in of_model):
        return ClassNames(of_model)
    outputs = metadata.get("outputs")
    tables = [item for item in outputs if isinstance(item, Mapping)] if isinstance(outputs, list) else []
    if output is not None:
        tables = tables[output : output + 1]
    lists = [table["labels"] for table in tables if table.get("labels")]
    is_clear = len(lists) == 1 and isinstance(lists[0], list) and all(isinstance(item, str) for item in lists[0])
    return ClassNames(lists[0]) if is_clear else ClassNames()
