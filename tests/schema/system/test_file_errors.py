"""Errors of the operating system about files have a reason and a next step."""

import errno
import os
from pathlib import Path

import pytest

from tpuconvert.known_errors import known_error
from tpuconvert.schema.errors import ResourceLimitError, TpuConvertError, UsageError
from tpuconvert.schema.system.file_errors import unreadable, unwritable


def os_error(number: int, path: str | Path = "") -> OSError:
    return OSError(number, os.strerror(number), str(path)) if path else OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "reason", "hint"),
    [
        (errno.EACCES, "cannot be read (Permission denied)", "your user needs permission"),
        (errno.EPERM, "cannot be read (Operation not permitted)", "your user needs permission"),
        (errno.EISDIR, "cannot be read (Is a directory)", "name a file in it"),
        (errno.EIO, "cannot be read (Input/output error)", "copy the file again"),
        (errno.ELOOP, "cannot be read (Too many levels of symbolic links)", "check the path"),
    ],
)
def test_a_file_that_cannot_be_read(number: int, reason: str, hint: str) -> None:
    error = unreadable(os_error(number), "net.onnx")
    assert (error.message, error.file) == (reason, "net.onnx")
    assert hint in error.hint


def test_the_closed_folder_above_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path / "a"))
    error = unreadable(os_error(errno.EACCES), tmp_path / "a" / "b" / "net.onnx")
    assert error.hint.endswith(f"see {tmp_path / 'a'}")


def test_an_absent_file_and_a_hint_of_the_caller(tmp_path: Path) -> None:
    assert "no such file" in unreadable(os_error(errno.ENOENT), tmp_path / "net.onnx").message
    error = unreadable(os_error(errno.EACCES, "a.png"), hint="copy it")
    assert (error.file, error.hint) == ("a.png", "copy it")


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.EACCES, UsageError, "choose a folder that you may write to"),
        (errno.EEXIST, UsageError, "a file is where a folder is needed"),
        (errno.ENAMETOOLONG, UsageError, "choose a shorter name"),
        (errno.ENOSPC, ResourceLimitError, "free space"),
    ],
)
def test_a_file_that_cannot_be_written(number: int, kind: type[TpuConvertError], hint: str) -> None:
    error = unwritable(os_error(number), "out.tpum")
    assert type(error) is kind and error.file == "out.tpum" and hint in error.hint
    assert error.message == f"cannot be written ({os.strerror(number)})"


def test_a_folder_that_is_missing_is_created_first(tmp_path: Path) -> None:
    assert unwritable(os_error(errno.ENOENT), tmp_path / "none" / "out.tpum").hint == "create its folder first"
    assert unwritable(os_error(errno.ENOENT), tmp_path / "out.tpum").hint == "choose a folder that you may write to"


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENOSPC, errno.EIO, errno.EINVAL])
def test_any_other_call_has_a_next_step_too(number: int) -> None:
    assert known_error(os_error(number, "out.tpum")).hint
    assert known_error(os_error(number)).hint
