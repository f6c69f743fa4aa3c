"""Files of the commands that compare a model with its source: ``MODEL [WEIGHTS] FILE.tpum``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tpuconvert.cli.problems import ensure
from tpuconvert.frontends.sniffing import SourceFile
from tpuconvert.schema.text.visible_text import shell_word
from tpuconvert.text.text_format import several


def source_and_model(command: str, files: Sequence[str]) -> tuple[str, str | None, str]:
    """Return the source, its weights or None, and the converted model.

    Args:
        command: name of the command, for the hint.
        files: the files of the command line, in their order.

    Raises:
        UsageError: there are too few or too many files, or the converted model is not the last one.

    """
    ensure(
        len(files) in (2, 3),
        f"{several(len(files), 'file')} where two are needed: a source (with its weights) and a model made from it",
        hint=f"tpuconvert {command} {_shown_files(files)}",
    )
    kinds = [SourceFile(file).kind for file in files]
    converted = [file for file, kind in zip(files, kinds, strict=True) if kind is not None and kind.id == "tpum"]
    if len(converted) == 1:
        others = [file for file in files if file != converted[0]]
        ensure(
            files[-1] == converted[0],
            f"{converted[0]}: a converted model where the source is expected",
            hint=f"give it last: {shlex.join(['tpuconvert', command, *others, converted[0]])}",
        )
    return files[0], files[1] if len(files) == 3 else None, files[-1]


def _shown_files(files: Sequence[str]) -> str:
    """Return the arguments of a command, with the name of the one file that is known in its place."""
    source, model = "MODEL [WEIGHTS]", "FILE.tpum"
    if len(files) == 1:
        name = shell_word(files[0])
        source, model = (source, name) if files[0].lower().endswith(".tpum") else (name, model)
    return f"{source} {model}"
