"""Digests of contents: 128-bit XXH3.

They detect damage and mix-ups: a truncated file, or a source that is not the one a model was converted from. They do
not detect forgery, because XXH3 collisions can be constructed; nothing relies on that. SHA-256 would take longer than
the rest of the conversion of a large model.

Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from xxhash import xxh3_128

ALGORITHM = "xxh3-128"
"""Name of the algorithm in files. Digests are in canonical form, most significant byte first."""

CHUNK = 1 << 20
"""Bytes to hash at a time while data are copied: a block that fits into the cache and that file systems write fast."""

Digest = xxh3_128
"""Hash object with the methods of ``hashlib``: ``update``, ``digest`` and ``hexdigest``."""


def digest_of(data: bytes | memoryview) -> bytes:
    """Compute the digest of contiguous data."""
    return Digest(data).digest()
