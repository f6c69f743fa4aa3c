"""Limit of the tables that planning computes per element of an axis or per window."""

from __future__ import annotations

MOST_ENTRIES = 1 << 24
"""Entries of a table. While a plan is made, a table of this size needs a few hundred MiB."""


def check_table(entries: int) -> None:
    """Decline a kernel whose table would be too large; the reference operator computes the node.

    Raises:
        OverflowError: there are more than ``MOST_ENTRIES``.
    """
    if entries > MOST_ENTRIES:
        raise OverflowError(f"a table of {entries} entries, more than {MOST_ENTRIES}")
