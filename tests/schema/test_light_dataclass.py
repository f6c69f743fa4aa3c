"""What the light decorator makes is compared with what the standard one makes of the same class body."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tpuconvert.schema import light_dataclass


def _point(decorate: Callable[..., Any], **options: Any) -> Any:
    @decorate(frozen=True, **options)
    class Point:
        """Some point."""

        kind: ClassVar[str] = "point"
        x: int
        y: float = 0.5
        tags: tuple[str, ...] = dataclasses.field(default_factory=tuple)

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", int(self.x))

    return Point


BOTH = pytest.mark.parametrize(
    "decorate", [dataclasses.dataclass, light_dataclass.dataclass], ids=["standard", "light"]
)


@BOTH
def test_defaults_post_init_and_representation(decorate: Callable[..., Any]) -> None:
    point = _point(decorate)(3.7)
    assert (point.x, point.y, point.tags, point.kind) == (3, 0.5, (), "point")
    assert repr(point).endswith("Point(x=3, y=0.5, tags=())")


@BOTH
def test_fields_and_replace(decorate: Callable[..., Any]) -> None:
    point = dataclasses.replace(_point(decorate)(1, tags=("a",)), y=2.0)
    assert dataclasses.asdict(point) == {"x": 1, "y": 2.0, "tags": ("a",)}
    assert [item.name for item in dataclasses.fields(point)] == ["x", "y", "tags"]


@BOTH
def test_functions_of_the_module_need_no_standard_decorator(decorate: Callable[..., Any]) -> None:
    standard, light = _point(dataclasses.dataclass), _point(decorate)
    wanted = [(item.name, item.type, item.default, item.default_factory) for item in dataclasses.fields(standard)]
    for item in (light, light(1)):
        found = [(item.name, item.type, item.default, item.default_factory) for item in light_dataclass.fields(item)]
        assert found == wanted
    changed = light_dataclass.replace(light(1, tags=("a",)), y=2.0)
    assert (type(changed), dataclasses.asdict(changed)) == (light, {"x": 1, "y": 2.0, "tags": ("a",)})
    with pytest.raises(TypeError):
        light_dataclass.replace(changed, z=1)


@BOTH
def test_fields_with_more_than_a_default(decorate: Callable[..., Any]) -> None:
    @decorate(frozen=True)
    class Partly:
        """Fields that say how they are shown, given and compared."""

        x: int = dataclasses.field(default=3, repr=False)
        y: int = dataclasses.field(default=4, kw_only=True)
        note: str = dataclasses.field(default="", compare=False, metadata={"unit": "none"})

    assert (Partly.x, Partly.y) == (3, 4), "the class has the default, not the field"
    assert repr(Partly(1, "a")).endswith("Partly(y=4, note='a')")
    assert Partly(1, "a") == Partly(1, "b") != Partly(1, "a", y=5)
    assert [(item.name, item.default, item.kw_only) for item in dataclasses.fields(Partly)] == [
        ("x", 3, False),
        ("y", 4, True),
        ("note", "", False),
    ]
    assert dataclasses.fields(Partly)[2].metadata == {"unit": "none"}


@BOTH
def test_equal_only_to_its_own_class(decorate: Callable[..., Any]) -> None:
    first, second = _point(decorate), _point(decorate)
    assert first(1) == first(1) and hash(first(1)) == hash(first(1))
    assert first(1) != first(2) and first(1) != second(1) and first(1) != (1, 0.5, ())


@BOTH
def test_does_not_change(decorate: Callable[..., Any]) -> None:
    point = _point(decorate)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        del point.x


@BOTH
@pytest.mark.parametrize("arguments", [((), {}), ((1, 2.0, (), 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})], ids=str)
def test_arguments_that_do_not_fit(decorate: Callable[..., Any], arguments: Any) -> None:
    given, named = arguments
    with pytest.raises(TypeError):
        _point(decorate)(*given, **named)


@BOTH
def test_fields_by_name_only(decorate: Callable[..., Any]) -> None:
    point = _point(decorate, kw_only=True)
    assert point(x=1).x == 1
    with pytest.raises(TypeError):
        point(1)


@BOTH
def test_inherits_fields_and_methods(decorate: Callable[..., Any]) -> None:
    @decorate(frozen=True)
    class Named(_point(decorate)):  # type: ignore[misc]  # made inside of a function
        """A point with a name."""

        name: str = "here"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        __hash__ = None

    assert Named(1, 2.0, (), "there").name == "there"
    assert Named(1) == Named(2), "what a class says itself stays"


@BOTH
def test_fields_and_classes_that_are_not_compared(decorate: Callable[..., Any]) -> None:
    @decorate(frozen=True)
    class Partly:
        """Equal whatever the note says."""

        x: int
        note: str = dataclasses.field(default="", compare=False)

    @decorate(frozen=True, eq=False)
    class Itself:
        """Equal to itself alone."""

        x: int

    assert Partly(1, "a") == Partly(1, "b") and hash(Partly(1, "a")) == hash(Partly(1, "b"))
    assert Itself(1) != Itself(1) and len({Itself(1), Itself(1)}) == 2


@BOTH
def test_objects_that_change(decorate: Callable[..., Any]) -> None:
    @decorate()
    class Counted:
        """Some names, and how often they were seen."""

        names: list[str]
        count: int = 0

    one, other = Counted(["a"]), Counted(["a"])
    one.count += 1
    assert (one.count, one == other) == (1, False)
    other.count = 1
    assert one == other
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


@BOTH
def test_defaults_of_classes_above(decorate: Callable[..., Any]) -> None:
    class Plain:
        """No fields; its attribute is the default of a field below."""

        x: int = 5

    @decorate(frozen=True)
    class First(Plain):
        """The field and what it is called."""

        x: int
        name: str = "first"

    @decorate(frozen=True)
    class Second(First):
        """Another default, and one field more."""

        name: str = "second"
        size: float = 1.0

    assert [(item.name, item.default) for item in dataclasses.fields(Second)] == [
        ("x", 5),
        ("name", "second"),
        ("size", 1.0),
    ]
    assert repr(Second()).endswith("Second(x=5, name='second', size=1.0)")
    match Second(7, "two"):
        case First(x, name):
            assert (x, name) == (7, "two")
        case _:
            pytest.fail("a class of fields takes part in matching")


@BOTH
def test_mistakes_in_a_class(decorate: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @decorate(frozen=True)
        class Shared:
            """All objects would share the list."""

            names: list[str] = []  # noqa: RUF012  # the mistake


@BOTH
def test_mutable_values_of_a_class_are_no_defaults(decorate: Callable[..., Any]) -> None:
    @decorate(frozen=True)
    class Listed:
        """The list is the class's own."""

        known: ClassVar[list[str]] = ["a"]
        x: int = 0

    assert (Listed().x, Listed.known) == (0, ["a"])
    assert [item.name for item in dataclasses.fields(Listed)] == ["x"]


def test_standard_decorator_runs_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the many operators are never used."""
    seen: list[str] = []
    process = dataclasses.dataclass

    def counted(**options: Any) -> Callable[[type], type]:
        decorate = process(**options)

        def run(cls: type) -> type:
            seen.append(cls.__name__)
            return decorate(cls)

        return run

    monkeypatch.setattr(dataclasses, "dataclass", counted)

    @light_dataclass.dataclass(frozen=True)
    class Point:
        """Some point."""

        kind: ClassVar[str] = "point"
        x: int
        tags: tuple[str, ...] = ()

    assert repr(Point(1)).endswith("Point(x=1, tags=())")
    assert Point(1) == Point(1) and hash(Point(2)) == hash(Point(2))
    assert seen == []
    assert [item.name for item in dataclasses.fields(Point)] == ["x", "tags"]
    assert seen == ["Point"]
