"""Every definition agrees with the specification: operands, parameters, enumerations, locality, data types per chip.

Data types are compared by meaning, not by form: all assignments of the types that either side mentions are judged
by the contract's expressions and by our legality check.
"""

import dataclasses
import enum
import functools
import itertools
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.support.operators import contract
from tests.support.operators.contract import Entry
from tpuconvert.schema.definition.op import ALL, Op, Operand, all_ops
from tpuconvert.schema.errors import ProblemList, ShapeError, UnsupportedError, UsageError
from tpuconvert.schema.graph.graph import Graph
from tpuconvert.schema.graph.legality import Status, check, check_graph
from tpuconvert.schema.ops.quantization.requant_fp32_to_int import RequantFp32Mode, RequantFp32ToInt
from tpuconvert.schema.types import Chip, DType, Scalar, TensorType

ENTRIES = list(contract.defined_entries())

OURS = {"out_dtype", "index_dtype"}
"""Parameters that are missing in the contract: the result dtype of operators that allow several."""

NO_DEFAULT = {("pool", "kernel_h"): 0, ("pool", "kernel_w"): 0}
"""Replacement for the empty default of parameters that are required only in combination with others."""

STRICTER = {
    "interpolate": "the contract leaves reserved platforms to the chip check (docs/inside/semantics.md, section 16)",
}
"""Definitions whose dtype table is stricter than the contract, with the reason."""


def name_of(entry: Entry) -> str:
    return str(entry["name"])


def names_of(case: tuple[Entry, ...]) -> str:
    return "-".join(map(name_of, case))


@each("entry", ENTRIES, name_of)
def test_operands(entry):
    definition = all_ops()[entry["name"]]
    inputs = [operand_declaration(operand) for operand in entry["inputs"]]
    inputs += [(name, (), True, False, False) for name in contract.tensor_parameters(entry)]
    assert [operand_fields(operand) for operand in definition.inputs] == inputs
    assert [(o.name, o.ranks, o.optional, o.variadic) for o in definition.outputs] == [
        (name, ranks, optional, variadic)
        for name, ranks, _, optional, variadic in map(operand_declaration, entry["outputs"])
    ]


def operand_declaration(operand: Entry) -> tuple[Any, ...]:
    ranks = () if operand["rank"] == "any" else tuple(operand["rank"])
    return (
        operand["name"],
        ranks,
        operand["may_be_coeff"],
        operand.get("optional", False),
        operand.get("variadic", False),
    )


def operand_fields(operand: Operand) -> tuple[Any, ...]:
    return operand.name, operand.ranks, operand.coeff, operand.optional, operand.variadic


@each("entry", ENTRIES, name_of)
def test_parameters(entry):
    definition = all_ops()[entry["name"]]
    fields = [item for item in dataclasses.fields(definition) if item.name not in OURS]
    listed = [item for item in entry["params"] if item["name"] not in contract.tensor_parameters(entry)]
    if not all(item.kw_only for item in fields):  # Python requires parameters without default first
        listed.sort(key=lambda item: not item.get("required", False))
    assert [item.name for item in fields] == [item["name"] for item in listed]
    for field, parameter in zip(fields, listed, strict=True):
        if parameter.get("required"):
            assert field.default is dataclasses.MISSING, f"{field.name} is required"
        elif parameter["default"] is None:
            assert field.default == NO_DEFAULT.get((entry["name"], field.name)), field.name
        else:
            wanted = contract.field_value(definition, parameter, parameter["default"])
            assert field.default == wanted, field.name
            assert type(field.default) is type(wanted) or parameter["type"] in ("float", "double"), field.name
        if "enum" in parameter:
            assert values_of(contract.enum_of(definition, field.name)).items() >= parameter["enum"].items()
    if "out_dtype" in contract.names_of(definition):
        assert contract.names_of(definition)[-1] == "out_dtype"


def values_of(enumeration: type[enum.IntEnum]) -> dict[str, int]:
    return {name: member.value for name, member in enumeration.__members__.items()}


@each("entry", ENTRIES, name_of)
def test_locality(entry):
    definition = all_ops()[entry["name"]]
    assert definition.locality.kind.value == entry["locality"]["kind"]
    assert (definition.locality.condition is not None) == ("condition" in entry["locality"])


LIMITED = [entry for entry in contract.defined_entries() if "condition" in entry["locality"]]


@each("entry, example", [(entry, e) for entry in LIMITED for e in entry["examples"]], names_of)
def test_locality_condition(entry, example):
    inputs, expected = contract.arguments(entry, example), contract.results(entry, example)
    first = next(iter(expected.values()))
    op = contract.build(entry, example["params"], DType.of(first.dtype))
    types = [item for item in contract.types_of(inputs) if item is not None]
    out = [item for item in contract.types_of(list(expected.values())) if item is not None]
    names = [n for n, v in example["inputs"].items() for _ in (v if isinstance(v, list) else [v])]
    names += [name.split("[")[0] for name in expected]
    shapes: dict[str, list[int]] = {}
    dtypes: dict[str, str] = {}
    for name, type_ in zip(names, [*types, *out], strict=True):
        shapes.setdefault(name, list(type_.static_shape))
        dtypes.setdefault(name, type_.dtype.value)
    parameters = plain_parameters(entry, op)
    if isinstance(parameters.get("axis"), int) and parameters["axis"] < 0:
        parameters["axis"] += types[0].rank
    for chip in Chip:
        wanted = evaluate(
            entry["locality"]["condition"], dtypes, types, out, parameters, chip=chip.value, shape=shapes, **parameters
        )
        assert op.locality.condition is not None
        assert bool(op.locality.condition(op, tuple(types), tuple(out), chip)) == bool(wanted), chip


# --- data types -------------------------------------------------------------------------------------------------------


@each("entry", ENTRIES, name_of)
def test_unfinished(entry):
    """Operators that the vendor marks as unfinished as a whole. Marks of single chips and types are in the tables."""
    scope = set(entry.get("todo_scope", ())) - {chip.value for chip in Chip}
    assert all_ops()[entry["name"]].unfinished == ("op" in scope)
    assert scope <= {"op", "mode==1"}
    if "mode==1" in scope:
        assert entry["name"] == "requant_fp32_to_int"
        assert RequantFp32ToInt(mode=RequantFp32Mode.SCALE_OFFSET_ROUND).is_unfinished()
        assert not RequantFp32ToInt().is_unfinished()


@pytest.mark.slow
@pytest.mark.parametrize("chip", list(Chip), ids=lambda chip: chip.value)
@each("entry", ENTRIES, name_of)
def test_data_types(entry, chip):
    definition, table = all_ops()[entry["name"]], contract.table(entry, chip)
    support = definition.dtypes.get(chip)
    assert bool(support and support.cases) == table["supported"]
    if not table["supported"]:
        return
    assert support is not None
    assert support.todo == table["todo"]
    assert {dtype.value for dtype in support.todo_dtypes} == set(table.get("todo_dtypes", []))
    assert support.inferred == table.get("inferred", False)
    assert {case.compute for case in support.cases} == {case.get("compute", "") for case in table["cases"]}
    judged = 0
    for op in variants(entry, definition):
        for assignment in assignments(entry, op, chip):
            judged += 1
            wanted = accepts(entry, table, assignment, chip)
            found = check(op_with(assignment), chip, assignment.inputs, assignment.outputs, assignment.coeffs)
            if entry["name"] in STRICTER and wanted and found.status is Status.ILLEGAL:
                continue
            assert (found.status is not Status.ILLEGAL) == wanted, f"{assignment.dtypes} with {op}: {found}"
    assert judged


@each("entry", ENTRIES, name_of)
def test_constants(entry):
    """A constant operand is legal exactly if the contract has ``may_be_coeff``, with the stated number of elements."""
    definition = all_ops()[entry["name"]]
    op, assignment, chip = legal_use(entry, definition)
    exclusive = re.search(r"At most one of (\w) and (\w) is constant", entry["semantics"])
    alone = [f"tensor_{name}" for name in exclusive.groups()] if exclusive else []
    assert list(definition.one_constant_of) == alone

    def is_legal(extent: int, constants: set[str]) -> bool:
        types = [item and TensorType(item.dtype, (extent,)) for item in assignment.inputs]
        coeffs = [operand.name in constants for operand in definition.inputs]
        return check(op, chip, types, assignment.outputs, coeffs).status is not Status.ILLEGAL

    required = {name for case in contract.table(entry, chip)["cases"] for name in case.get("requires_coeff", [])}
    for operand, given in zip(entry["inputs"], assignment.inputs, strict=False):
        if given is not None:
            constants = {operand["name"], *required}
            has_one_element = "one element when constant" in operand.get("shape", "")
            assert is_legal(1, constants) == operand["may_be_coeff"], operand["name"]
            assert is_legal(2, constants) == (operand["may_be_coeff"] and not has_one_element), operand["name"]
    if alone:
        assert not is_legal(1, set(alone))


def legal_use(entry: Entry, definition: type[Op]) -> tuple[Op, Any, Chip]:
    """A node with the operator that is legal on a chip."""
    for chip in reversed(Chip):
        for op in variants(entry, definition) if contract.table(entry, chip)["supported"] else ():
            for use in assignments(entry, op, chip):
                found = op_with(use)
                if check(found, chip, use.inputs, use.outputs, use.coeffs).status is not Status.ILLEGAL:
                    return found, use, chip
    raise AssertionError(f"{entry['name']} is legal nowhere")


LIMITED_TO = re.compile(r"(BM\d+) accepts only (true|false)")
"""Text of the contract for a chip that supports only one value of a parameter."""

LIMITED_PARAMETERS = [
    (entry, parameter)
    for entry in contract.defined_entries()
    for parameter in entry["params"]
    if LIMITED_TO.search(parameter["meaning"])
]


@pytest.mark.parametrize(("entry", "parameter"), LIMITED_PARAMETERS, ids=lambda item: item["name"])
def test_a_chip_takes_the_parameter_values_of_the_contract(entry, parameter):
    found = LIMITED_TO.search(parameter["meaning"])
    assert found is not None
    limited, accepted = Chip[found[1]], found[2] == "true"
    op, use, _ = legal_use(entry, all_ops()[entry["name"]])
    for chip in (Chip.BM1684, Chip.BM1686):
        for value in (False, True):
            changed = dataclasses.replace(op, **{parameter["name"]: value})
            verdict = check(changed, chip, use.inputs, use.outputs, use.coeffs)
            assert (verdict.status is not Status.ILLEGAL) == (chip is not limited or value is accepted), verdict


def test_parameters_that_are_limited_on_a_chip():
    assert [(entry["name"], p["name"]) for entry, p in LIMITED_PARAMETERS] == [
        ("sort", "stable"),
        ("argsort", "stable"),
    ]


@each("entry", ENTRIES, name_of)
def test_aliases(entry):
    """The constructor accepts the alternative parameter names that the contract lists, and no others."""
    listed = {alias: p["name"] for p in entry["params"] for alias in p.get("aliases", [])}
    assert dict(all_ops()[entry["name"]].parameter_aliases) == listed


ATOMICS = [
    entry
    for entry in contract.defined_entries()
    if entry["name"].startswith("bm_atomic") and len(entry["inputs"]) > 1 and not entry["name"].endswith("BM_CPY")
]


@each("entry", ATOMICS, name_of)
def test_atomic_operations_take_the_data_types_of_the_contract_together(entry):
    """One dtype or one bit width where the contract requires it, in graph construction and in the reference."""
    definition = all_ops()[entry["name"]]
    (case,) = contract.table(entry, Chip.BM1684)["cases"]
    required = {p["name"]: 1 for p in entry["params"] if p.get("required")}
    op = contract.build(entry, required)
    names = [operand.name for operand in definition.inputs]
    listed = [case["operands"].get(name, case["operands"].get("all")) for name in names]
    for dtypes in itertools.product(*listed):
        same, width = len(set(dtypes)) == 1, len({DType(dtype).bits for dtype in dtypes}) == 1
        wanted = same if "all_same" in case["rules"] else width if "inputs_same_width" in case["rules"] else True
        types = [TensorType(DType(dtype), (1, 2, 1, 3)) for dtype in dtypes]
        if not wanted:
            with pytest.raises(ShapeError, match="operands must"):
                op.infer(*types)
            continue
        (result,) = op.infer(*types)
        (found,) = op.evaluate(*(np.ones(item.static_shape, item.dtype.numpy) for item in types), chip=Chip.BM1684)
        assert found.dtype == result.dtype.numpy


PER_CHANNEL = {
    "tpu_bdc_int_pc_requant": ("multiplier", "shift", "offset"),
    "tpu_bdc_int_pc_dequant": ("offset", "multiplier", "shift"),
    "tpu_bdc_fp32_pc_dequant": ("offset",),
}
"""Columns of the parameter tensor, in the order of docs/inside/semantics.md, section 9.4."""


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("name", PER_CHANNEL)
def test_ranges_of_parameters_per_channel(name, dtype):
    """The ranges in the contract's text hold when the operator runs, and for constants of a graph."""
    (entry,) = (item for item in contract.defined_entries() if item["name"] == name)
    example, text = entry["examples"][0], contract.table(entry, Chip.BM1686)["text"]
    x, quant, *rest = contract.arguments(entry, example)
    assert x is not None
    assert quant is not None
    if "dequant" in name:
        x = x.astype(dtype.numpy) if dtype.is_signed else np.abs(x).astype(dtype.numpy)
    op = contract.build(entry, example["params"], None if "dequant" in name else dtype)
    ranges = {
        word: (int(low), int(high)) for word, low, high in re.findall(r"(offset|shift) in (-?\d+)\.\.(\d+)", text)
    }
    if "offset lies in the range of the src dtype" in text:
        ranges["offset"] = (int(np.iinfo(x.dtype).min), int(np.iinfo(x.dtype).max))
    elif not dtype.is_signed:
        (ranges["offset"],) = (
            (int(low), int(high)) for low, high in re.findall(r"(\d+)\.\.(\d+) for an unsigned", text)
        )
    assert set(ranges) == set(PER_CHANNEL[name]) - {"multiplier"}
    for word, (lowest, highest) in ranges.items():
        for value in (lowest - 1, lowest, highest, highest + 1):
            given = np.zeros_like(quant)
            given[0, 1, 0, PER_CHANNEL[name].index(word)] = value
            graph = Graph("constant parameters")
            source = graph.input("x", TensorType(DType.of(x.dtype), x.shape))
            graph.output(graph.add(op, source, *(graph.constant(item) for item in (given, *rest) if item is not None)))
            problems = ProblemList("f", "BM1686")
            check_graph(graph, Chip.BM1686, problems)
            if lowest <= value <= highest:
                op.evaluate(x, given, *rest)
                assert not problems
                continue
            wanted = rf"the {word} of channel 1 is {value}, expected {lowest}\.\.{highest}"
            with pytest.raises(UsageError, match=wanted):
                op.evaluate(x, given, *rest)
            with pytest.raises(UnsupportedError, match=wanted):
                problems.raise_if_any()


def variants(entry: Entry, definition: type[Op]) -> Iterator[Op]:
    """Instances of an operator with the parameters of its examples and every legal value of each enumeration."""
    seen = set()
    required = {parameter["name"]: 0 for parameter in entry["params"] if parameter.get("required")}
    for example in entry["examples"] or [{"params": required}]:
        enums = [parameter for parameter in entry["params"] if "enum" in parameter]
        for values in itertools.product(*(parameter["enum"] for parameter in enums)):
            changed = {
                p["name"]: value for p, value in zip(enums, values, strict=True) if p["name"] in example["params"]
            }
            changed |= {p["name"]: v for p, v in zip(enums, values, strict=True) if not p.get("required")}
            try:
                op = contract.build(entry, {**example["params"], **changed})
            except ValueError:
                continue  # a reserved value, or one excluded by the other parameters
            if str(op) not in seen:
                seen.add(str(op))
                yield op


def assignments(entry: Entry, op: Op, chip: Chip) -> Iterator[Any]:
    """All assignments of the dtypes mentioned in a case of either side, plus one dtype that is not mentioned."""
    scalars = [p["name"] for p in entry["params"] if p.get("dtype_operand") and getattr(op, p["name"]) is not None]
    present = [operand for operand in op.inputs if not operand.optional]
    results = [operand for operand in op.outputs if not operand.optional]
    for inputs, outputs in {(tuple(op.inputs), tuple(op.outputs)), (tuple(present), tuple(results))}:
        names = [*(operand.name for operand in inputs), *scalars, *(operand.name for operand in outputs)]
        candidates = [mentioned_dtypes(entry, op, chip, name) for name in names]
        if len(set(map(tuple, candidates))) == 1 and len(names) > 4:  # every operand alike: one may differ
            combinations: Any = itertools.chain.from_iterable(
                [*[(d,) * i + (other,) + (d,) * (len(names) - i - 1) for i in range(len(names))]]
                for d in candidates[0]
                for other in candidates[0]
            )
        else:
            combinations = itertools.product(*candidates)
        for constant in (True, False):
            for dtypes in combinations if constant else itertools.product(*(c[:2] for c in candidates)):
                yield assignment_of(op, inputs, scalars, outputs, dict(zip(names, dtypes, strict=True)), constant)


def mentioned_dtypes(entry: Entry, op: Op, chip: Chip, name: str) -> list[DType]:
    """Dtypes that a case lists for an operand, and one other."""
    listed = {
        DType(dtype)
        for case in contract.table(entry, chip)["cases"]
        for key in (name, "all")
        for dtype in case["operands"].get(key, [])
    }
    listed |= {d for case in op.dtypes[chip].cases for key in (name, ALL) for d in case.operands.get(key, ())}
    other = [dtype for dtype in DType if dtype not in listed]
    return sorted(listed, key=list(DType).index) + other[:1]


def assignment_of(
    op: Op,
    inputs: tuple[Operand, ...],
    scalars: list[str],
    outputs: tuple[Operand, ...],
    dtypes: dict[str, DType],
    constant: bool,
) -> Any:
    return SimpleNamespace(
        op=op,
        dtypes=dtypes,
        scalars={name: dtypes[name] for name in scalars},
        ins=[dtypes[operand.name] for operand in inputs] + [dtypes[name] for name in scalars],
        outs=[dtypes[operand.name] for operand in outputs],
        inputs=[TensorType(dtypes[o.name], (1,)) if o in inputs else None for o in op.inputs],
        outputs=[TensorType(dtypes[operand.name], (1,)) for operand in outputs],
        coeffs=[operand.coeff and constant and operand.name not in op.one_constant_of[1:] for operand in op.inputs],
        constant=constant,
    )


def op_with(assignment: Any) -> Op:
    """The operator with scalar attributes of the assigned dtypes."""
    changed = {name: Scalar(dtype, 1) for name, dtype in assignment.scalars.items()}
    return dataclasses.replace(assignment.op, **changed) if changed else assignment.op


def accepts(entry: Entry, table: Entry, assignment: Any, chip: Chip) -> bool:
    """Return True if the specification accepts it: dtypes, condition, rules and constants match a case."""
    dtypes = {name: dtype.value for name, dtype in assignment.dtypes.items()}
    constants = {operand["name"] for operand in entry["inputs"] if operand["may_be_coeff"] and assignment.constant}
    parameters = plain_parameters(entry, assignment.op)
    judge = functools.partial(
        evaluate,
        dtypes=dtypes,
        ins=[SimpleNamespace(dtype=dtype) for dtype in assignment.ins],
        outs=[SimpleNamespace(dtype=dtype) for dtype in assignment.outs],
        p=parameters,
        chip=chip.value,
    )
    rules = contract.dtype_rules()
    return any(
        ("when" not in case or judge(case["when"], **parameters))
        and all(dtypes[name] in case["operands"].get(name, case["operands"].get("all", [])) for name in dtypes)
        and constants.issuperset(name for name in case.get("requires_coeff", []) if name in dtypes)
        and all(judge(rules[rule]["expr"]) for rule in case["rules"] if present(rules[rule]["expr"], dtypes))
        for case in table["cases"]
    )


def present(expression: str, dtypes: dict[str, str]) -> bool:
    """Return True if the operands that a rule names are present; absent ones are not checked."""
    return all(name in dtypes for name in re.findall(r"\bd\['(\w+)'\]", expression))


def plain_parameters(entry: Entry, op: Op) -> dict[str, Any]:
    """Parameters as numbers and lists, for evaluation in expressions of the contract."""
    plain = {}
    for parameter in entry["params"]:
        value = getattr(op, parameter["name"], None)
        if isinstance(value, Scalar):
            value = value.value
        plain[parameter["name"]] = int(value) if isinstance(value, enum.IntEnum) else value
    return plain


_compiled = functools.lru_cache(maxsize=None)(functools.partial(compile, filename="contract", mode="eval"))


def evaluate(expression: str, dtypes: dict[str, str], ins: Any, outs: Any, p: dict[str, Any], **names: Any) -> Any:
    """Evaluate an expression of the contract."""
    known = contract.document()["dtypes"]

    def representable(value: float, dtype: str) -> bool:
        return DType(dtype).holds(value) if known[dtype]["kind"] == "int" else value == 0

    scope = {
        "__builtins__": {},
        **{f.__name__: f for f in (all, any, len, set, enumerate, list)},
        "bits": lambda dtype: known[dtype]["bits"],
        "signed": lambda dtype: known[dtype]["signed"],
        "inr": representable,
        "d": dtypes,
        "ins": [item.dtype.value for item in ins],
        "outs": [item.dtype.value for item in outs],
        "p": p,
        **names,
    }
    return eval(_compiled(expression), scope)
