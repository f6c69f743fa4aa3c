"""Files that are opened for reading."""

from pathlib import Path
from typing import Any

import pytest

from tpuconvert.schema.errors import ResourceLimitError
from tpuconvert.schema.system import bounded_files
from tpuconvert.schema.system.limits import limited


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


def test_a_text_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_bytes(bytes(11))
    with limited(text_bytes=11):
        assert bounded_files.read_bounded(path) == bytes(11)
    with limited(text_bytes=10), pytest.raises(ResourceLimitError, match="11 bytes of text, more than 10"):
        bounded_files.read_bounded(path)
