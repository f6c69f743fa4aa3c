"""Digests of contents: 128-bit XXH3.

They detect accidents: a truncated file, or a source file other than the one from which a model was converted. They do
not protect against an attacker, who can construct XXH3 collisions. SHA-256 is not used because it would take longer
than the rest of the conversion of a large model.

Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from xxhash import xxh3_128

ALGORITHM = "xxh3-128"
"""Name of the algorithm, as stored in files. Digests are stored with the most significant byte first."""

CHUNK = 1 << 20
"""Block size in bytes for hashing while copying: it fits into the cache, and file systems write such blocks fast."""

Digest = xxh3_128
"""Hash object with the interface of ``hashlib``: ``update``, ``digest`` and ``hexdigest``."""


def digest_of(data: bytes | memoryview) -> bytes:
    """Compute the digest of contiguous data."""
    return Digest(data).digest()
