"""The operator base class, the operator registry, and the vocabulary of definitions for legal data types and chips.

The decorator ``tpu_op`` turns a class into an operator definition, which is a frozen dataclass. Its fields are the
parameters of the operator, with the names of the TPU operator set. Each node of a graph has an instance.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from tpuconvert.schema.arithmetic.finite import InfinityUse, is_finite
from tpuconvert.schema.discovery import import_modules
from tpuconvert.schema.errors import UsageError
from tpuconvert.schema.types import Array, Chip, DType, Scalar, TensorType
from tpuconvert.schema.user_code import note_definition


@dataclass(frozen=True)
class Operand:
    """One tensor operand or result of an operator.

    Args:
        name: its name in the operator set.
        ranks: the ranks that are allowed; empty means any.
        layout: axis order, such as ``NCHW``, or ``any``.
        coeff: True if a constant is accepted.
        single: True if a constant must have exactly one element.
        optional: True if it may be absent.
        variadic: True if it is one or more tensors; at most one operand of an operator is variadic. Absent operands
            after a variadic one must be given as None.

    """

    name: str
    ranks: tuple[int, ...] = ()
    layout: str = "any"
    coeff: bool = False
    optional: bool = False
    variadic: bool = False
    single: bool = False


def operands_given(declared: tuple[Operand, ...], count: int) -> list[Operand]:
    """Return the declaration of each of ``count`` operands or results. The list is shorter if fewer are declared."""
    places = [index for index, operand in enumerate(declared) if operand.variadic]
    if not places:
        return list(declared[:count])
    first = places[0]
    repeated = max(count - len(declared) + 1, 0)
    return [*declared[:first], *[declared[first]] * repeated, *declared[first + 1 :]][:count]


@dataclass(frozen=True)
class Assignment:
    """Data types of one node, for legality rules.

    ``d`` maps operand, result and scalar names to data types; ``ins`` and ``outs`` list them in declaration order,
    scalars after the tensors; ``coeffs`` names the operands that are constants.
    """

    op: Op
    chip: Chip
    d: Mapping[str, DType]
    ins: tuple[DType, ...]
    outs: tuple[DType, ...]
    coeffs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rule:
    """A named condition on the data types of one node. ``text`` is the condition in error messages."""

    name: str
    text: str
    holds: Callable[[Assignment], bool] = field(compare=False)


ALL = "all"
"""Key in ``Case.operands`` that applies to every operand, result and scalar."""


@dataclass(frozen=True)
class Case:
    """A set of data-type combinations that a chip accepts.

    A case matches if ``when`` is true for the parameters, every present operand has a listed type, every operand in
    ``requires_coeff`` is constant, and every rule is satisfied.
    """

    operands: Mapping[str, tuple[DType, ...]]
    rules: tuple[Rule, ...] = ()
    when: Callable[[Any], bool] | None = field(default=None, compare=False)
    when_text: str = ""
    requires_coeff: tuple[str, ...] = ()
    compute: str = ""


@dataclass(frozen=True)
class Support:
    """Support of one operator on one chip.

    Args:
        cases: the accepted data types; empty means that the chip does not have the operator.
        todo: True if the vendor marks the whole operator as unfinished on this chip: legal with a warning.
        todo_dtypes: data types that the vendor marks as unfinished on this chip.
        inferred: True if the support was inferred because the vendor's documentation does not state it.

    """

    cases: tuple[Case, ...] = ()
    todo: bool = False
    todo_dtypes: tuple[DType, ...] = ()
    inferred: bool = False


ALL_SAME = Rule(
    "all_same", "every tensor and scalar operand has the same dtype", lambda a: len(set(a.ins + a.outs)) == 1
)

CaseLike = DType | Case


def same(*dtypes: DType, when: Callable[[Any], bool] | None = None, when_text: str = "", compute: str = "") -> Case:
    """Case in which all operands and results have the same data type, one of ``dtypes``."""
    return Case(MappingProxyType({ALL: dtypes}), (ALL_SAME,), when, when_text, (), compute)


def case(
    operands: Mapping[str, tuple[DType, ...]],
    *rules: Rule,
    when: Callable[[Any], bool] | None = None,
    when_text: str = "",
    requires_coeff: tuple[str, ...] = (),
    compute: str = "",
) -> Case:
    """Case with a list of data types per operand name."""
    return Case(MappingProxyType(dict(operands)), rules, when, when_text, requires_coeff, compute)


_Entry = tuple[CaseLike, ...] | Support | None
_UNSET: Any = object()


def on(*everywhere: CaseLike, bm1682: _Entry = _UNSET, bm1684: _Entry = _UNSET, bm1686: _Entry = _UNSET) -> ChipTable:
    """Legal data types: ``everywhere``, except for chips with their own argument; None means not on that chip.

    Bare data types are collected into one case in which all operands have the same type.
    """
    named = {Chip.BM1682: bm1682, Chip.BM1684: bm1684, Chip.BM1686: bm1686}
    return MappingProxyType({chip: _support(everywhere if e is _UNSET else e) for chip, e in named.items()})


def on_bm1686(*cases: CaseLike) -> ChipTable:
    """Legal data types of an operator that exists only on BM1686."""
    return on(bm1682=None, bm1684=None, bm1686=cases)


def todo(*cases: CaseLike) -> Support:
    """Support with these cases that the vendor marks as unfinished."""
    return replace(_support(cases), todo=True)


def _support(entry: _Entry) -> Support:
    if entry is None:
        return Support()
    if isinstance(entry, Support):
        return entry
    bare = tuple(item for item in entry if isinstance(item, DType))
    cases = tuple(item for item in entry if isinstance(item, Case))
    return Support(((same(*bare),) if bare else ()) + cases)


ChipTable = Mapping[Chip, Support]


class LocalityKind(enum.Enum):
    """Locality classes: operand and result tiles may stay in on-chip memory always, under a condition, or never."""

    LOCAL = "local"
    LIMITED_LOCAL = "limited_local"
    GLOBAL = "global"


@dataclass(frozen=True)
class Locality:
    """Locality class. For LIMITED_LOCAL, ``condition`` decides from the parameters, types and chip of a node."""

    kind: LocalityKind
    condition: Callable[[Any, tuple[TensorType, ...], tuple[TensorType, ...], Chip], bool] | None = field(
        default=None, compare=False
    )
    text: str = ""


LOCAL = Locality(LocalityKind.LOCAL)
GLOBAL = Locality(LocalityKind.GLOBAL)


def limited_local(
    condition: Callable[[Any, tuple[TensorType, ...], tuple[TensorType, ...], Chip], bool], text: str
) -> Locality:
    """Local if ``condition(op, operand types, result types, chip)`` is true, otherwise global."""
    return Locality(LocalityKind.LIMITED_LOCAL, condition, text)


class OpKind(enum.Enum):
    """Kind of an operator: who executes or defines it."""

    TPU = "tpu"
    HOST = "host"
    CUSTOM = "custom"
    ATOMIC = "atomic"
    COMPOSITE = "composite"


class Trait(enum.Flag):
    """Facts about an operator that are true for all its parameters and data types.

    A definition lists them in ``traits``. The optimizer, quantization, the layer-group planner and the runtime check
    ``Trait.UNARY in op.traits`` instead of lists of operator names. A trait defined as a combination implies the
    others: ``UNARY`` implies ``ELEMENTWISE``. Facts that depend on parameters are methods of ``Op``.
    """

    ELEMENTWISE = 1 << 0
    """Element ``i`` of the result depends only on element ``i`` of each operand, and on parameters that may differ per
    channel. Layer groups can tile it along any axis."""

    UNARY = ELEMENTWISE | 1 << 1
    """``y[i] = f(x[i])`` with one ``f`` for the whole tensor: the optimizer moves it across data movement."""

    LUT = UNARY | 1 << 2
    """Operand and result are floats of one type. A quantized network uses a lookup table of 256 entries instead."""

    BINARY = ELEMENTWISE | 1 << 3
    """``y[i] = f(a[i], b[i])`` with one ``f`` for the whole tensors, which broadcast."""

    COMPARISON = 1 << 4
    """The result is 1 where a relation is true, else 0."""

    COMMUTATIVE = 1 << 5
    """``f(a, b) = f(b, a)``, bit for bit."""

    COMMUTATIVE_INTEGERS = 1 << 6
    """``f(a, b) = f(b, a)`` for integers only: the float maximum of 0 and -0 is the second operand."""

    KEEPS_SIGN = 1 << 7
    """The result has no negative element if no operand has one."""

    KEEPS_BOOLEAN = 1 << 8
    """Every element of the result is 0 or 1 if every element of the operands is."""

    AFFINE = 1 << 9
    """If all operands except x are constant, the result is ``k * x + b``. A divisor must be constant."""

    LINEAR = 1 << 10
    """A sum of products of operand 0 with weights (operand 1), plus an optional bias (operand 2)."""

    MOVES_DATA = 1 << 11
    """Every element of the result is an element of an operand, or padding. Other operands are indices or shapes."""

    PADS = MOVES_DATA | 1 << 12
    """The result also contains padding: elements that no operand has."""

    MOVES_INTEGERS = MOVES_DATA | 1 << 13
    """In a quantized network, it moves integers and keeps the operand's scale; without this trait it moves floats."""

    VIEWS = MOVES_INTEGERS | 1 << 14
    """The result is a strided view of the only operand."""

    REARRANGES = VIEWS | 1 << 15
    """The result has all elements of the only operand: axes are permuted, merged or split."""

    ALONG_AXES = 1 << 16
    """Works along the axes that its parameters name (``axis``, unless it is a list), identically at every index of the
    other axes."""

    FREE = 1 << 17
    """No data are transferred in global memory."""

    RESHAPES = REARRANGES | FREE
    """The result has all elements of the only operand in the same order."""

    SHAPE_ONLY = 1 << 18
    """The result depends on the shapes of the operands only, not on their elements."""

    @property
    def names(self) -> frozenset[str]:
        """Names of these traits and of the traits that they imply."""
        return frozenset(name for name, trait in Trait.__members__.items() if trait in self)


NO_TRAITS = Trait(0)

Extents = tuple[int, ...]
Types = tuple[TensorType | None, ...]
Arrays = tuple[Array | None, ...]


class Op:
    """Base of all operator definitions, which are frozen dataclasses.

    A definition declares ``inputs`` and ``outputs`` (operand tuples with the names of the operator set), ``dtypes``
    (legal types per chip), ``locality``, ``traits`` (facts on which other parts rely), ``infer`` and ``reference``.

    Attributes:
        unfinished: True if the vendor marks the whole operator as unfinished; it is legal with a warning.
        is_pure: True if equal operands give equal results, so that nodes may be folded and shared.
        decides_by: names of operands whose order, comparison or conversion to an integer determines the result, so
            that a small change of them may change the result by any amount.
        half_operands: indices of FLOAT32 operands whose constants files store in FLOAT16 if it has all elements.
        decides_elements: True if every such decision determines one element of the result, such as a label or a mask.
        has_row_set: True if the rows of the result are a set in any order, such as detections.
        rewrite_weight: contribution of a node to the measure that optimizer rules decrease; low for data movement.
        chip_dependent: True if results differ between chips; ``reference`` then has a parameter ``chip``.
        infinity: meaning of an infinite constant for the operator.
        pads_results: True if the operator finds a data-dependent number of items and pads the result to a fixed size.
        one_constant_of: names of operands of which at most one may be constant.
        has_subgraphs: True if parameters are subgraphs (``control_flow.ControlFlowOp``).
        shape_operands: names of operands of which only the shapes are used, beside operands whose elements are used.
        parameter_aliases: further parameter names that the constructor accepts, and the parameters they mean.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # every definition has it, this base does not

    name: ClassVar[str] = ""
    kind: ClassVar[OpKind] = OpKind.TPU
    inputs: ClassVar[tuple[Operand, ...]] = ()
    outputs: ClassVar[tuple[Operand, ...]] = (Operand("tensor_o"),)
    dtypes: ClassVar[ChipTable] = MappingProxyType({})
    locality: ClassVar[Locality] = GLOBAL
    traits: ClassVar[Trait] = NO_TRAITS
    rewrite_weight: ClassVar[int] = 4
    chip_dependent: ClassVar[bool] = False
    is_pure: ClassVar[bool] = True
    decides_by: ClassVar[tuple[str, ...]] = ()
    half_operands: ClassVar[tuple[int, ...]] = ()
    decides_elements: ClassVar[bool] = False
    has_row_set: ClassVar[bool] = False
    pads_results: ClassVar[bool] = False
    infinity: ClassVar[InfinityUse] = InfinityUse.NONE
    unfinished: ClassVar[bool] = False
    one_constant_of: ClassVar[tuple[str, ...]] = ()
    has_subgraphs: ClassVar[bool] = False
    shape_operands: ClassVar[tuple[str, ...]] = ()
    parameter_aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})

    # Arguments are the operands: TensorType or Array, and None for an absent optional operand.
    infer: ClassVar[Callable[..., tuple[TensorType, ...]]]
    reference: ClassVar[Callable[..., tuple[Array, ...]]]

    def result_dtype(self, first: DType) -> DType:
        """Data type of the result: the parameter ``out_dtype`` if it exists and is not None, else ``first``."""
        chosen: DType | None = getattr(self, "out_dtype", None)
        return first if chosen is None else chosen

    def is_unfinished(self) -> bool:
        """Return True if the vendor marks the operator with these parameters as unfinished on every chip."""
        return self.unfinished

    def clamp_range(self) -> tuple[float, float] | None:
        """Lower and upper bound if the operator clamps a float operand and does nothing else; otherwise None."""
        return None

    def is_non_negative(self) -> bool:
        """Return True if no element of the result is negative for any operands."""
        limits = self.clamp_range()
        return Trait.COMPARISON in self.traits or (limits is not None and limits[0] >= 0)

    def keeps_sign(self) -> bool:
        """Return True if the result has no negative element when no operand has one."""
        return Trait.KEEPS_SIGN in self.traits or self.only_moves_data

    @property
    def only_moves_data(self) -> bool:
        """True if every element of the result is an element of an operand."""
        return Trait.MOVES_DATA in self.traits and Trait.PADS not in self.traits

    def count_macs(self, operands: Sequence[Extents], results: Sequence[Extents]) -> int:
        """Number of multiply-accumulates (MACs), given the extents of the present operands and of the results."""
        return 0

    def attributes(self) -> dict[str, Any]:
        """Parameter names and values, in declaration order."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def scalars(self) -> dict[str, Scalar]:
        """The scalar parameters, which count as operands in the data-type rules."""
        return {name: value for name in _parameters(type(self)) if isinstance(value := getattr(self, name), Scalar)}

    check_values: ClassVar[Callable[[Any, Types, Arrays], None] | None] = None
    """Check the values of the operands, given their types and arrays; raise UsageError if a value is not accepted.
    An array is None if the operand is absent, or unknown before the model runs."""

    def evaluate(self, *arrays: Array | None, chip: Chip = Chip.BM1686) -> tuple[Array, ...]:
        """Check the values of the operands and run the reference for one chip.

        Empty results are created here, so that a reference does not have to support results without elements.
        """
        if any(item is not None and item.size == 0 for item in arrays) and self.kind is not OpKind.CUSTOM:
            types = tuple(None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays)
            results = self.infer(*types)
            if results and all(result.is_static and 0 in result.shape for result in results):
                return tuple(np.empty(result.static_shape, result.dtype.numpy) for result in results)
        if self.check_values is not None:
            types = tuple(None if item is None else TensorType(DType.of(item.dtype), item.shape) for item in arrays)
            self.check_values(types, arrays)
        if self.chip_dependent:
            return self.reference(*arrays, chip=chip)
        return self.reference(*arrays)

    # These methods are inherited because generating them for every dataclass takes 45 ms of a small conversion.

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in self.__dataclass_fields__:  # the constructor may set each parameter once
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in _parameters(type(self))]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in _parameters(type(self))])

    def __str__(self) -> str:
        changed = []
        for item in fields(self):
            value = getattr(self, item.name)
            if item.default is dataclasses.MISSING or value != item.default:
                shown = value.name if isinstance(value, enum.Enum) else value
                changed.append(f"{item.name}={shown}")
        return f"{self.name}({', '.join(changed)})"


class UnaryOp(Op):
    """Base of operators on one tensor whose result has the shape of the operand."""

    inputs: ClassVar[tuple[Operand, ...]] = (Operand("tensor_i"),)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        """Shapes: the operand may have any shape, and the result has the same shape."""
        return (TensorType(self.result_dtype(x.dtype), x.shape),)


_PARAMETERS: dict[type[Op], tuple[str, ...]] = {}  # cache of parameter names


def _parameters(definition: type[Op]) -> tuple[str, ...]:
    names = _PARAMETERS.get(definition)
    if names is None:
        names = _PARAMETERS[definition] = tuple([item.name for item in fields(definition)])
    return names


def non_finite_parameters(op: Op) -> Iterator[tuple[str, Array]]:
    """Yield name and values of each float parameter of an operator that contains NaN or infinities."""
    for name in _parameters(type(op)):
        parameter = getattr(op, name)
        if isinstance(parameter, Scalar):
            parameter = parameter.value
        if isinstance(parameter, float):
            if not math.isfinite(parameter):
                yield name, np.asarray(parameter)
        elif isinstance(parameter, tuple | np.ndarray) and len(parameter) and isinstance(parameter[0], float):
            array = np.asarray(parameter, np.float64)
            if not is_finite(array):
                yield name, array


OpClass = TypeVar("OpClass", bound=type[Op])

_REGISTRY: dict[str, type[Op]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def tpu_op(name: str, kind: OpKind = OpKind.TPU, *, kw_only: bool = False) -> Callable[[OpClass], OpClass]:
    """Make a class a frozen dataclass and register it as the definition of an operator.

    Args:
        name: name in model files, which must never be renamed or reused.
        kind: kind of the operator.
        kw_only: True if the constructor takes parameters by name only.

    Raises:
            ValueError: another operator has this name.

    """

    def register(definition: OpClass) -> OpClass:
        if name in _REGISTRY:
            first, second = _REGISTRY[name].__module__, definition.__module__
            raise ValueError(f"operator '{name}' is defined twice: {first} and {second}")
        if "__dataclass_fields__" not in vars(definition):  # a plugin may have applied ``dataclass`` itself
            # If a base is a plain dataclass, its generated methods ignore the fields of this class: generate them here.
            generate = definition.__eq__ is not Op.__eq__
            is_frozen = definition.__setattr__ is not Op.__setattr__
            dataclass(frozen=is_frozen, eq=generate, repr=generate, kw_only=kw_only)(definition)
        definition.name = name
        definition.kind = kind
        if definition.parameter_aliases:
            _accept_aliases(definition)
        _REGISTRY[name] = definition
        return definition

    return register


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def op_base(definition: OpClass) -> OpClass:
    """Make a class a dataclass whose fields are parameters of all operator definitions derived from it."""
    dataclass(eq=False, repr=False)(definition)
    return definition


def _accept_aliases(definition: type[Op]) -> None:
    """Make the constructor also accept the names in ``parameter_aliases``."""
    init: Callable[..., None] = definition.__init__
    aliases = definition.parameter_aliases

    @functools.wraps(init)
    def init_with_aliases(self: Op, *args: Any, **kwargs: Any) -> None:
        for alias, name in aliases.items():
            if alias in kwargs:
                if name in kwargs:
                    raise TypeError(f"{alias} is another name of {name}, and both are given")
                kwargs[name] = kwargs.pop(alias)
        init(self, *args, **kwargs)

    definition.__init__ = init_with_aliases  # type: ignore[assignment, method-assign]  # wraps the generated one


def find_op(name: str) -> type[Op] | None:
    """Operator definition with this name, or None."""
    if name not in _REGISTRY:
        _import_definitions()
    return _REGISTRY.get(name)


def loaded_ops() -> tuple[type[Op], ...]:
    """All definitions whose module has been imported."""
    return tuple(_REGISTRY.values())


def all_ops() -> dict[str, type[Op]]:
    """All registered definitions by name, in alphabetical order."""
    _import_definitions()
    return dict(sorted(_REGISTRY.items()))


@functools.cache
def _import_definitions() -> None:
    """Import every module of ``schema/ops``, so that a new operator requires only a new file."""
    import_modules("tpuconvert.schema.ops")


def register_op(name: str) -> Callable[[OpClass], OpClass]:
    """Decorator that adds an operator: a frozen dataclass derived from ``tpuconvert.Op``.

    Args:
        name: name stored in model files, such as ``acme_swish``. Use a prefix, because names must be unique.

    Raises:
        UsageError: the name is taken.

    """

    def register(definition: OpClass) -> OpClass:
        note_definition(definition)
        all_ops()  # register the package's own operators first, so that a clash is reported for the plugin
        try:
            return tpu_op(name, OpKind.CUSTOM)(definition)
        except ValueError as error:
            raise UsageError(str(error), hint="give the operator a name with a prefix of your own") from error

    return register
