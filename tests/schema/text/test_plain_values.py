"""Plain values of dataclasses: keys, hidden fields, added properties, and values that JSON does not have."""

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tpuconvert.schema.text.plain_values import MERGED, Plain, to_plain


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    a: int
    path: Path = Path("x/y")


@dataclass(frozen=True)
class Outer(
    Plain, hidden=("secret",), added=("double", "triple"), keys={"inner": MERGED, "ratio": "ratio_db", "note": "note?"}
):
    inner: Inner
    ratio: float
    color: Color
    shares: dict[int, float]
    secret: str = "s"
    note: str = ""
    _sum: int = 0

    @property
    def double(self) -> int:
        return 2 * self.inner.a

    def triple(self) -> list[int]:
        return [3 * self.inner.a]


@dataclass(frozen=True)
class Derived(Outer, hidden=("color",)):
    more: tuple[Inner, ...] = ()


def test_keys_of_a_class() -> None:
    plain = Outer(Inner(2), math.inf, Color.RED, {1: 0.5, 2: math.nan}).to_dict()
    assert plain == {
        "a": 2,
        "path": "x/y",
        "ratio_db": None,
        "color": "red",
        "shares": {"1": 0.5, "2": None},
        "double": 4,
        "triple": [6],
    }


def test_absent_key_and_derived_class() -> None:
    plain = Derived(Inner(1), 0.5, Color.RED, {}, note="n", more=(Inner(7),)).to_dict()
    assert plain["note"] == "n"
    assert plain["more"] == [{"a": 7, "path": "x/y"}]
    assert plain["double"] == 2
    assert "color" not in plain
    assert "secret" not in plain


def test_other_values() -> None:
    assert to_plain((1, None, [True, -math.inf, "x"])) == [1, None, [True, None, "x"]]
