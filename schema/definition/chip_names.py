"""Names of chips and boards that users may write, and the target chip that each name selects.

Evidence for the aliases: programs exported for BM1686 compute the same integers in the vendor's simulators of BM1684X
and BM1688.
"""

from __future__ import annotations

import re

from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import Chip

ALIASES = {"bm1684x": Chip.BM1686, "bm1688": Chip.BM1686}
"""Accepted names of further products, and the target chip whose operators they execute exactly."""

KNOWN = (*(chip.value.lower() for chip in Chip), *ALIASES)
"""Accepted names."""

_OTHER = f"its TPU has other operators than {', '.join(KNOWN)}: use the vendor's compiler for it"
_BM1684 = "its TPU is a BM1684: choose --chip bm1684"
_BM1684X = "its TPU is a BM1684X: choose --chip bm1684x"
_BM1688 = "its TPU is of the kind of BM1688: choose --chip bm1688, and compare the results with the device"
_ANSWERS = (
    (r"cv186\w*|se98?|se916", _BM1688),
    (r"s[emc]7\w*|airbox", _BM1684X),
    (r"s[emc]5\w*", _BM1684),
    (r"s[ec]3\w*", "its TPU is a BM1682: choose --chip bm1682"),
    (r"cv18\w*|sg200\d|bm1690\w*|sg2260\w*|sg2044|bm1880|bm1680|bm1681", _OTHER),
    (r"sg2042", "it has no TPU: choose the chip of the accelerator card"),
)
"""Patterns of the names of other products, and the recommendation in the error message."""


def plain_name(text: str) -> str:
    """Return a name in lower case, without dashes, underscores and spaces."""
    return re.sub(r"[-_\s]", "", text).lower()


def parse_chip(text: str | Chip) -> Chip:
    """Return the target chip that a name selects.

    Raises:
        ValueError: the name is not accepted; the message names the chip to choose.
    """
    if isinstance(text, Chip):
        return text
    name = plain_name(text)
    if name in ALIASES:
        return ALIASES[name]
    try:
        return Chip(name.upper())
    except ValueError:
        pass
    for pattern, answer in _ANSWERS:
        if re.fullmatch(pattern, name):
            raise ValueError(f"chip '{text}': {answer}")
    texts = (did_you_mean(name, KNOWN), f"known are {', '.join(KNOWN)}")
    raise ValueError(f"unknown chip '{text}': {' '.join(filter(None, texts))}")


def alias_of(text: str | Chip) -> str:
    """Return the normalized name of a product that is an alias of a target chip; empty for the target chips."""
    name = "" if isinstance(text, Chip) else plain_name(text)
    return name if name in ALIASES else ""


def device_of(text: str | Chip) -> str:
    """Return the chip of the vendor's compiler that a name asks for; empty for a name that may mean several."""
    if text is Chip.BM1684 or (isinstance(text, str) and plain_name(text) == "bm1684"):
        return "bm1684"
    return alias_of(text)
