"""Writing of arrays with any names to .npz files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from tpuconvert.schema.types import Array


def write_npz(file: str | os.PathLike[str] | IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write the bytes of ``numpy.savez``, whose parameters ``file`` and ``allow_pickle`` cannot be names of arrays.

    Args:
        file: path or open file to write.
        arrays: arrays without objects, by name. Slashes in names are kept.

    Raises:
        OSError: the file cannot be written.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
