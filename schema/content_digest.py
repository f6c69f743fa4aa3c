"""Digests of contents: XXH3 of 128 bits, at the speed of memory.

They tell damage and mix-ups: a file that lost bytes on its way, a source that is not the one a model was made from.
They do not tell forgery: whoever wants two contents to have the same digest can make them. Nothing here relies on that;
SHA-256, which would, takes longer than everything else that the conversion of a gigabyte does.

Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from xxhash import xxh3_128

ALGORITHM = "xxh3-128"
"""What files name it. Digests are in its canonical form, the most significant byte first."""

CHUNK = 1 << 20
"""Bytes to hash at a time where something else is done with them: they are still in one of the processor's caches then,
and a file system that gets so much at once takes it in larger pieces."""

Digest = xxh3_128
"""As those of ``hashlib``: ``update``, ``digest`` and ``hexdigest``."""


def digest_of(data: bytes | memoryview) -> bytes:
    """The digest of a content that lies in one piece."""
    return Digest(data).digest()
