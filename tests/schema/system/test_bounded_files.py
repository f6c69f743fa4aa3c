"""Files that are opened for reading."""

from pathlib import Path
from typing import Any

import pytest

from tpuconvert.schema.system import bounded_files


def test_an_interrupt_while_a_file_is_opened_stays_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the file object was made, which closes the descriptor by itself."""
    path = tmp_path / "x"
    path.write_bytes(b"")

    def interrupted(*arguments: Any, **options: Any) -> Any:
        open(*arguments, **options).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(bounded_files, "open", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        bounded_files.open_regular(path)
