"""Parameters of one layer. Reads are recorded, so that parameters that were not read can be reported."""

from collections.abc import Iterable, Mapping
from typing import Any

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.schema.errors import INVALID_NODE

_START_OF_TRAINING = "weight_filler bias_filler filler scale_filler shift_filler slope_filler"
_TRAINING = "moving_average_fraction momentum frozen stable_prod_grad"
_IMPLEMENTATION = "engine force_nd_im2col cudnn_convolution_algo_seeker debug_info"
WITHOUT_EFFECT = frozenset(f"{_START_OF_TRAINING} {_TRAINING} {_IMPLEMENTATION}".split())
"""Parameters that do not change the result of a trained layer, whatever their value."""


class Parameters:
    """One parameter message of a layer, such as ``convolution_param``.

    A parameter that is not given has the default of Caffe's schema.

    Args:
        name: name of the message, for error messages.
        message: the protobuf message; None if Caffe's schema does not have it.
        extra: values of fields that the schema does not have, by name. A plugin reads its own parameters from here.
        lines: line in the file of each field in ``extra``.

    """

    def __init__(
        self, name: str, message: Any, extra: dict[str, list[Any]], lines: Mapping[str, int] | None = None
    ) -> None:
        self.name = name
        self._message = message
        self._extra = extra
        self._lines = lines or {}
        self._read: set[str] = set()

    @property
    def unread_items(self) -> list[str]:
        """Parameters in the file that were not read, each as ``name: value``."""
        fields = [] if self._message is None else [(f.name, value) for f, value in self._message.ListFields()]
        unread = [(name, value) for name, value in fields if name not in self._read | WITHOUT_EFFECT]
        texts = [f"{name}: {_format_value(value)}" for name, value in unread]
        extra = [(name, values) for name, values in self._extra.items() if name not in self._read]
        return [*texts, *(f"{name}: {_format_value(values)}{self._place(name)}" for name, values in extra)]

    def _place(self, name: str) -> str:
        return f" (line {self._lines[name]})" if name in self._lines else ""

    def ignore(self, *names: str) -> None:
        """Mark parameters that have no effect on inference as read."""
        self._read.update(names)

    def has(self, name: str) -> bool:
        """Return True if the parameter is given."""
        self._read.add(name)
        if name in self._extra:
            return True
        if not self._knows(name):
            return False
        try:
            return bool(self._message.HasField(name))
        except ValueError:  # HasField does not accept repeated fields
            return len(getattr(self._message, name)) > 0

    def whole(self, name: str) -> int:
        """Value of an integer parameter."""
        return int(self._one(name))

    def pair(self, name: str, prefix: str = "") -> tuple[int, int]:
        """Height and width: ``prefix_h`` and ``prefix_w`` if one of them is given, else ``name`` for both."""
        height, width = f"{prefix or name}_h", f"{prefix or name}_w"
        if self.has(height) or self.has(width):
            return self.whole(height), self.whole(width)
        return self.whole(name), self.whole(name)

    def number(self, name: str) -> float:
        """Value of a float parameter."""
        return float(self._one(name))

    def flag(self, name: str) -> bool:
        """Value of a Boolean parameter."""
        return bool(self._one(name))

    def text(self, name: str) -> str:
        """Value of a string parameter."""
        return str(self._one(name))

    def choice(self, name: str) -> str:
        """Value of an enum parameter, by name."""
        value = self._one(name)
        if not self._knows(name):
            return str(value)
        field = self._message.DESCRIPTOR.fields_by_name[name]
        return str(field.enum_type.values_by_number[value].name)

    def ints(self, name: str) -> tuple[int, ...]:
        """Values of a repeated integer parameter; empty if it is not given."""
        return tuple(int(value) for value in self._all(name))

    def floats(self, name: str) -> tuple[float, ...]:
        """Values of a repeated float parameter; empty if it is not given."""
        return tuple(float(value) for value in self._all(name))

    def group(self, name: str) -> "Parameters":
        """Parameters of a nested message; all of them have their defaults if the message is not given."""
        self._read.add(name)
        if self._knows(name):
            return Parameters(f"{self.name}.{name}", getattr(self._message, name), {})
        values = self._extra.get(name, [{}])
        return Parameters(f"{self.name}.{name}", None, values[-1] if isinstance(values[-1], dict) else {})

    def messages(self, name: str) -> list[Any]:
        """Messages of a repeated field; empty if it is not given."""
        return list(self._all(name))

    def require(self, *names: str) -> None:
        """Check that the layer gives all of these parameters.

        Raises:
            CannotConvertError: a parameter is missing; the message names the first one.

        """
        for name in names:
            if not self.has(name):
                raise CannotConvertError(INVALID_NODE, f"{self.name} has no {name}", "give it in the prototxt")

    def _knows(self, name: str) -> bool:
        return self._message is not None and name in self._message.DESCRIPTOR.fields_by_name

    def _one(self, name: str) -> Any:
        self._read.add(name)
        if name in self._extra:
            return self._extra[name][-1]
        if self._knows(name):
            return getattr(self._message, name)
        raise CannotConvertError(INVALID_NODE, f"{self.name} has no {name}", "give it in the prototxt")

    def _all(self, name: str) -> Iterable[Any]:
        self._read.add(name)
        if name in self._extra:
            return self._extra[name]
        if self._knows(name):
            return list(getattr(self._message, name))
        return []


def _format_value(value: Any) -> str:
    if hasattr(value, "ListFields"):
        return "{ " + " ".join(str(value).split()) + " }"
    if isinstance(value, str | bytes):
        return repr(value)
    if hasattr(value, "__len__") and not isinstance(value, dict):
        items = [_format_value(item) for item in list(value)[:8]]
        return items[0] if len(items) == 1 else f"[{', '.join(items)}]"
    if isinstance(value, dict):
        inside = " ".join(f"{name}: {_format_value(values)}" for name, values in value.items())
        return "{ " + inside + " }"
    return f"{value:g}" if isinstance(value, float) else str(value)
