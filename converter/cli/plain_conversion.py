"""``tpuconvert convert MODEL [WEIGHTS] [-o OUT.tpum]`` without any other option, as most calls of a conversion are.

Three words need no library that parses command lines, and loading one takes longer than reading a small network. What
is done is what the command does with all its options left at their defaults; every other call is left to the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuconvert.cli.conversion import Files

OUTPUT = ("-o", "--output")


def plain_files(arguments: Sequence[str]) -> Files | None:
    """The files that a plain call names; None where the call has other options, or is wrong."""
    if not arguments or arguments[0] != "convert":
        return None
    names: list[str] = []
    output: str | None = None
    words = iter(arguments[1:])
    for word in words:
        if word in OUTPUT and output is None:
            word = output = next(words, "-")
        else:
            names.append(word)
        if word.startswith("-"):
            return None
    if not 1 <= len(names) <= 2:
        return None
    from tpuconvert.cli.conversion import Files

    model, weights = (*names, None)[:2]
    assert model is not None
    return Files(model, weights, None, output, None)


def convert_plainly(files: Files) -> None:
    """Convert with the defaults of all options."""
    from tpuconvert.cli.conversion import make, tell
    from tpuconvert.cli.progress_bar import drawn_progress
    from tpuconvert.options import Options
    from tpuconvert.plugins import load_plugins
    from tpuconvert.schema.input_files import note_input

    for path in filter(None, (files.model, files.weights)):
        note_input(path)
    files.check()
    load_plugins()
    with drawn_progress() as progress:
        summary = make(files, Options(), progress, with_verification=False)
    tell(summary, as_json=False)
