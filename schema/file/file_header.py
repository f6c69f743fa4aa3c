"""The fixed header of a ``.tpum`` file.

All numbers are little-endian; offsets count bytes from the start of the file:

    0    magic            8 bytes  "TPUM" CR LF 1A LF: detects a transfer that changed line ends
    8    format version   u32
    12   header size      u32      128
    16   file size        u64
    24   metadata offset  u64      end of the weights
    32   metadata size    u64      up to the end of the file
    40   weights offset   u64      128
    48   weights size     u64
    56   digest algorithm 8 bytes  "xxh3-128"
    64   digest           16 bytes of everything after the header
    80   zeros up to 128

The metadata size and the weights size are multiples of 64; both parts are padded with zeros. The metadata come last
because they contain the digest of the source file, which is computed while its weights are copied. In versions 1 and 2,
which can still be read, the metadata begin at byte 128 and the weights, of any size, follow. Version 1 has no digest
algorithm: the SHA-256 of everything after the header is at byte 56 (32 bytes), followed by zeros.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tpuconvert.schema.system.content_digest import ALGORITHM, digest_of

MAGIC = b"TPUM\r\n\x1a\n"
FORMAT_VERSION = 4
"""The newest version: 3, and FLOAT32 constants whose elements are stored in FLOAT16."""
WITHOUT_HALF = 3
"""Version of files without such constants."""
HEADER_SIZE = 128
ALIGNMENT = 64
"""Alignment in bytes of the weight segment and of every constant in it."""

_LAYOUT = struct.Struct("<8sIIQQQQQ72s")
_START = struct.Struct("<8sI")
_DIGESTS = {1: (b"", 32), 2: (ALGORITHM.encode(), 16), 3: (ALGORITHM.encode(), 16), 4: (ALGORITHM.encode(), 16)}
"""File version -> name of the digest algorithm, and size of the digest in bytes."""
_METADATA_LAST = 3
"""First version in which the weights precede the metadata."""


def align_up(offset: int) -> int:
    """Round ``offset`` up to a multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class HeaderError(ValueError):
    """The header does not match the file.

    Attributes:
        hint: the next step for the user; empty if it is to copy or convert the model again.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True)
class Header:
    """Header of a file. All offsets follow from the two sizes, so that a damaged offset is detected."""

    metadata_size: int
    weights_size: int
    digest: bytes = bytes(16)
    version: int = WITHOUT_HALF

    @property
    def weights_offset(self) -> int:
        """Offset of the weight segment."""
        return HEADER_SIZE if self.version >= _METADATA_LAST else HEADER_SIZE + self.metadata_size

    @property
    def metadata_offset(self) -> int:
        """Offset of the metadata."""
        return HEADER_SIZE + self.weights_size if self.version >= _METADATA_LAST else HEADER_SIZE

    @property
    def file_size(self) -> int:
        """Size of the whole file in bytes."""
        return HEADER_SIZE + self.metadata_size + self.weights_size

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        return _LAYOUT.pack(
            MAGIC,
            self.version,
            HEADER_SIZE,
            self.file_size,
            self.metadata_offset,
            self.metadata_size,
            self.weights_offset,
            self.weights_size,
            _DIGESTS[self.version][0] + self.digest,
        )

    def is_digest_of(self, content: memoryview) -> bool:
        """Return True if the digest matches the content after the header."""
        if self.version == 1:
            import hashlib

            return hashlib.sha256(content).digest() == self.digest
        return digest_of(content) == self.digest

    @staticmethod
    def unpack(start: bytes, file_size: int) -> Header:
        """Read the header from the first bytes of a file that begins with the magic.

        Raises:
            HeaderError: the version is unknown, or sizes do not match each other or the file.
        """
        if len(start) < HEADER_SIZE:
            raise HeaderError(f"it ends inside its header, after {len(start)} bytes")
        _, version = _START.unpack_from(start)
        if version > FORMAT_VERSION:
            raise HeaderError(
                f"format version {version} is newer than {FORMAT_VERSION}, the newest that this tpuconvert reads",
                "upgrade tpuconvert: pip install --upgrade tpuconvert",
            )
        sizes = _LAYOUT.unpack_from(start)
        if sizes[3] > file_size:
            raise HeaderError(f"it has {file_size} bytes of {sizes[3]}: it was cut off")
        name, digest_size = _DIGESTS.get(version, (b"", 0))
        header = Header(sizes[5], sizes[7], sizes[8][len(name) :][:digest_size], version)
        is_padded = header.metadata_size % ALIGNMENT == 0
        if version >= _METADATA_LAST:
            is_padded = is_padded and header.weights_size % ALIGNMENT == 0
        fits = header.file_size == file_size and is_padded
        if version not in _DIGESTS or not fits or header.pack() != start[:HEADER_SIZE]:
            raise HeaderError(f"its header does not describe a file of {file_size} bytes")
        return header
