"""Writing what commands are asked to write, in one step per file."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tpuconvert.report import Description, full_text, to_json
from tpuconvert.schema.types import Array


def write_report(path: Path, description: Description) -> None:
    """Write a report in the form that the name asks for: .html, .json, else text."""
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from tpuconvert.report_page import to_html

        text = to_html(description)
    else:
        text = to_json(description) if suffix == ".json" else full_text(description) + "\n"
    replace_file(path, text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file. Names are kept as they are, slashes included."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    replace_file(path, buffer.getvalue())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that at any moment there is the old content or the new one.

    Raises:
        OSError: it cannot be written; nothing is left behind.

    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes private files; this one is an ordinary result
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
