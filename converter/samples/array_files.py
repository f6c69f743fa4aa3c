"""Reading of numeric arrays from .npz and .npy files."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tpuconvert.schema.errors import AmbiguousInputError, CorruptInputError
from tpuconvert.schema.system.absent_file import absent_file
from tpuconvert.schema.system.bounded_files import check_regular
from tpuconvert.schema.system.file_errors import unreadable
from tpuconvert.schema.system.input_files import note_input
from tpuconvert.schema.system.limits import check_expansion
from tpuconvert.schema.types import Array

_MOST_RESIDENT = 1 << 22
"""Number of bytes of memory-mapped samples that stay in memory after their use."""

_LEAST_MAPPED = 1 << 21
"""Number of bytes that the system maps at most when a page is used: a large page."""

Batch = TypeVar("Batch")


def released_after_use(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, and release the memory of used ones that ``load_arrays`` has mapped.

    Otherwise the pages of all samples count as memory of the process. The arrays stay valid: their pages are read again
    when they are used.
    """
    size = 0
    for batch in batches:
        yield batch
        arrays = batch.values() if isinstance(batch, Mapping) else [batch]
        mapped = [array for array in arrays if isinstance(array, np.memmap) and array.mode == "r"]
        size += sum(max(array.nbytes, _LEAST_MAPPED) for array in mapped)
        if size >= _MOST_RESIDENT and hasattr(mmap.mmap, "madvise"):
            for array in mapped:
                array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            size = 0


def copied_from_file(batch: Any) -> Any:
    """Return a batch whose memory-mapped arrays are copied, so that keeping it keeps no pages of the file."""
    if isinstance(batch, Mapping):
        return {name: copied_from_file(array) for name, array in batch.items()}
    return np.array(batch) if isinstance(batch, np.memmap) else batch


def load_arrays(path: Path) -> dict[str, Array]:
    """Read an .npz (arrays by name) or an .npy file (one array, named ""). Pickled objects are never loaded.

    Raises:
        UsageError: the file cannot be read.
        CorruptInputError: the file is not an .npz or .npy file, or contains pickled objects.
        ResourceLimitError: its arrays expand to more than the limit.

    """
    import lzma
    import tokenize
    import zipfile  # pulls in all compression modules
    import zlib

    note_input(path)
    try:
        check_regular(path)
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if path.suffix.lower() == ".npy" else None)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            _check_members(loaded.zip, path)
            arrays = {name: loaded[name] for name in loaded.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):  # NumPy returns the bytes of a member without the mark of an array
                raise ValueError(f"its member {name!r} is not an array")
        return arrays
    except FileNotFoundError:
        raise absent_file(path) from None
    except (
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        SyntaxError,
        RuntimeError,
        OverflowError,
        RecursionError,
        MemoryError,  # a damaged header gives the size
        struct.error,
        tokenize.TokenError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
    ) as error:
        # NumPy's message suggests loading pickled objects, which can run code
        reason = "neither .npy nor .npz, or with pickled objects in it" if "pickle" in str(error) else str(error)
        hint = "arrays of numbers are written by numpy.savez(FILE, NAME=array)"
        raise CorruptInputError(f"not a NumPy file, or a damaged one: {reason}", file=str(path), hint=hint) from error
    except OSError as error:
        raise unreadable(error, path) from error


def _check_members(archive: Any, path: Path) -> None:
    """Check the names of the members, and their sizes, which no member exceeds when it is read."""
    members = archive.infolist()
    names = [member.filename.removesuffix(".npy") for member in members]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise AmbiguousInputError(f"has two arrays of the name '{twice[:200]}'", file=str(path))
    check_expansion(
        sum(member.compress_size for member in members), sum(member.file_size for member in members), str(path)
    )


def number_type(name: object) -> np.dtype[Any]:
    """Return the type of numbers that a file of unknown origin names: NumPy reads other texts as structured types.

    Raises:
        ValueError: it is another text.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{str(name)[:40]!r} is not a type of numbers")
    dtype = np.dtype(name)
    if dtype.kind not in "biuf" and dtype.isbuiltin != 2:  # 2: a type of ml_dtypes
        raise ValueError(f"{name[:40]!r} is not a type of numbers")
    return dtype
