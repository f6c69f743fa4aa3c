"""The files of a model that a signature covers, with their digests.

Names and order are those of OpenSSF Model Signing: POSIX paths relative to the model, sorted by their parts. A model
that is one file has the name ".". A shard is ``path:start:end`` in bytes, end excluded.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from tpuconvert.schema.bounded_files import open_regular
from tpuconvert.schema.errors import CorruptInputError, UsageError

GIT_PATHS = (".git", ".gitattributes", ".github", ".gitignore")
"""Paths in a folder that belong to version control: not part of a model, and not signed."""

_HASHES = {"sha256": "sha256", "blake2": "blake2b", "blake2b": "blake2b"}
"""Name of a hash in a signature -> its name in ``hashlib``. BLAKE2b has 64 bytes in both."""

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Serialization:
    """How a model is divided into hashed parts.

    Args:
        hash_type: a key of ``_HASHES``.
        shard_size: size in bytes of the parts of a file; None for whole files.
        allow_symlinks: whether links to files are followed. Without it a link is an error.
        ignore_paths: POSIX paths relative to the model that are not hashed, with all that is in them.

    """

    hash_type: str = "sha256"
    shard_size: int | None = None
    allow_symlinks: bool = False
    ignore_paths: tuple[str, ...] = ()

    @property
    def algorithm(self) -> str:
        """Name of the digests in the list of resources."""
        name = _HASHES[self.hash_type]
        return name if self.shard_size is None else f"{name}-sharded-{self.shard_size}"

    def to_dict(self) -> dict[str, Any]:
        """Return the object ``serialization`` of a statement."""
        method = {"method": "files"} if self.shard_size is None else {"method": "shards"}
        size = {} if self.shard_size is None else {"shard_size": self.shard_size}
        ignored = {"ignore_paths": list(self.ignore_paths)} if self.ignore_paths else {}
        return {**method, "hash_type": self.hash_type, **size, "allow_symlinks": self.allow_symlinks, **ignored}

    @classmethod
    def from_dict(cls, content: Any) -> Serialization:
        """Read the object ``serialization`` of a statement.

        Raises:
            CorruptInputError: a value has another type, or the method or the hash is unknown.

        """
        if not isinstance(content, dict):
            raise CorruptInputError("the signature does not state how the files were hashed")
        method, name = content.get("method"), content.get("hash_type")
        if method not in ("files", "shards") or name not in _HASHES:
            expected = "expected the method files or shards with sha256 or blake2b"
            raise CorruptInputError(f"the files were hashed with method {method!r} and hash {name!r}, {expected}")
        size, links, ignored = content.get("shard_size"), content.get("allow_symlinks"), content.get("ignore_paths", [])
        if isinstance(size, float) and size.is_integer():  # protobuf writes every number of a predicate as a float
            size = int(size)
        if (method == "shards" and not (type(size) is int and size > 0)) or type(links) is not bool:
            raise CorruptInputError(f"shard_size is {size!r} and allow_symlinks is {links!r} for the method {method}")
        if not isinstance(ignored, list) or not all(isinstance(path, str) for path in ignored):
            raise CorruptInputError(f"ignore_paths is {ignored!r}, expected a list of paths")
        return cls(name, size if method == "shards" else None, links, tuple(ignored))


def model_name(model: Path) -> str:
    """Return the last part of the path of a model."""
    name = model.name
    return name if name not in ("", "..") else os.path.basename(os.path.realpath(model))


def hash_files(model: Path, how: Serialization, only: Iterable[str] | None = None) -> dict[str, str]:
    """Hash the files of a model.

    Args:
        model: a file or a folder.
        how: hash, size of the parts, links and ignored paths.
        only: names of parts to hash; others are left out. None for all.

    Returns:
        Name -> digest in hexadecimal digits, in the order of a signature.

    Raises:
        OSError: a file cannot be read.
        UsageError: a link, a pipe, a device, or a name that is not UTF-8.

    """
    wanted = None if only is None else frozenset(only)
    found: dict[str, str] = {}
    for path in _files(model, how):
        name = path.relative_to(model).as_posix()
        with open_regular(path, 0 if how.allow_symlinks else getattr(os, "O_NOFOLLOW", 0)) as file:
            for part, size in _parts(name, os.fstat(file.fileno()).st_size, how.shard_size):
                if wanted is None or part in wanted:
                    found[part] = _digest(file, size, how.hash_type)
                elif size is not None:
                    file.seek(size, os.SEEK_CUR)
    return found


def _files(model: Path, how: Serialization) -> list[Path]:
    """Return the files of a model that are not ignored, sorted by the parts of their paths."""
    ignored = [PurePosixPath(path) for path in how.ignore_paths]
    if not stat.S_ISDIR(os.stat(model).st_mode):
        _check_kind(model, how.allow_symlinks)
        return [model]
    found = []
    for folder, folders, files in os.walk(model, onerror=_raise):
        for name in (*folders, *files):
            path = Path(folder, name)
            inner = PurePosixPath(path.relative_to(model).as_posix())
            if any(inner.is_relative_to(each) for each in ignored):
                if name in folders:
                    folders.remove(name)
                continue
            _check_kind(path, how.allow_symlinks and name in files)
            if name in files:
                found.append((inner.parts, path))
    return [path for _, path in sorted(found)]


def _check_kind(path: Path, allow_symlinks: bool) -> None:
    """Check that a path is a file or a folder, and its name is text."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError("the name is not UTF-8", file=str(path), hint="rename the file") from error
    if path.is_symlink() and not allow_symlinks:
        hint = "--allow-symlinks follows links to files; links to folders are never followed"
        raise UsageError("is a symbolic link, which a signature does not cover", file=str(path), hint=hint)


def _raise(error: OSError) -> None:
    raise error


def _parts(name: str, size: int, shard_size: int | None) -> Iterator[tuple[str, int | None]]:
    """Yield name and size in bytes of the parts of a file; the size is None for the whole file."""
    if shard_size is None:
        yield name, None
        return
    for start in range(0, size, shard_size):
        end = min(start + shard_size, size)
        yield f"{name}:{start}:{end}", end - start


def _digest(file: BinaryIO, size: int | None, hash_type: str) -> str:
    """Hash the next bytes of a file, or all of it."""
    found = hashlib.new(_HASHES[hash_type])
    left = size
    while chunk := file.read(_CHUNK if left is None else min(_CHUNK, left)):
        found.update(chunk)
        left = None if left is None else left - len(chunk)
    return found.hexdigest()


def relative_ignored(model: Path, paths: Sequence[str | os.PathLike[str]], *, is_folder: bool) -> tuple[str, ...]:
    """Return the ignored paths relative to a folder, sorted, with those of version control.

    Raises:
        UsageError: a path is outside of the folder, or the whole folder.

    """
    if not is_folder:
        if paths:
            raise UsageError("the model is one file, of which nothing can be ignored", file=str(model))
        return ()
    root = os.path.abspath(model)
    found = set(GIT_PATHS)
    for path in paths:
        inner = os.path.relpath(os.path.join(root, path), root)
        if inner == os.curdir or inner.split(os.sep)[0] == os.pardir:
            raise UsageError(f"the ignored path '{os.fspath(path)}' is not in the model", file=str(model))
        found.add(Path(inner).as_posix())
    return tuple(sorted(found))
