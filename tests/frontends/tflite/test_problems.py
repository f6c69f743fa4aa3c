"""Everything that cannot be converted is reported at once; nothing in the file is dropped silently."""

from __future__ import annotations

import struct
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite

from tests.support.tflite.models import O, S, T, graph_of, ops, serialize, single
from tpuconvert.frontends.registry import Registration, registry
from tpuconvert.frontends.tflite import load
from tpuconvert.frontends.tflite.file.reader import Options, read_model
from tpuconvert.schema.errors import CorruptInputError, UnsupportedError, UsageError
from tpuconvert.schema.ops.copy import Copy


def error_of(folder: Path, *subgraphs: S, **arguments: object) -> UnsupportedError:
    path = folder / "model.tflite"
    path.write_bytes(serialize(*subgraphs))
    with pytest.raises(UnsupportedError) as caught:
        load(path, **arguments)  # type: ignore[arg-type]  # by name
    return caught.value


def test_all_problems_at_once(tmp_path: Path) -> None:
    """An unknown operator, an activation without a counterpart and a shuffled weight format, with good ones between."""
    tensors = [T("x", (1, 4)), T("u", (1, 4)), T("a", (1, 4)), T("s", (1, 4)), T("w", data=np.eye(4, dtype=np.float32))]
    tensors += [T("f", (1, 4)), T("y", (1, 4))]
    operators = [
        O("UNIQUE", [0], [1]),
        O("ABS", [1], [2]),
        O("ADD", [0, 2], [3], "AddOptions", {"fused_activation_function": 5}),
        O("FULLY_CONNECTED", [3, 4, -1], [5], "FullyConnectedOptions", {"weights_format": 1}),
        O("EXP", [5], [6]),
    ]
    error = error_of(tmp_path, S(tensors, operators, [0], [6]))
    assert error.exit_code == 3
    assert [(problem.op, problem.node) for problem in error.problems] == [
        ("UNIQUE", "u"),
        ("ADD", "s"),
        ("FULLY_CONNECTED", "f"),
    ]
    text = str(error)
    assert "3 problems in 2 kinds" in text
    assert "--outputs" not in text  # x is an input: a model that ends there is empty
    assert "fused_activation_function=SIGN_BIT" in text
    assert "weights_format=1" in text


def test_an_option_that_nobody_reads_is_reported(tmp_path: Path) -> None:
    """ABS has no axis, so options that carry one would be dropped."""
    error = error_of(tmp_path, single("ABS", [T(shape=(2,))], [T(shape=(2,))], "OneHotOptions", axis=1))
    (problem,) = error.problems
    assert (problem.op, problem.message) == ("ABS", "axis=1")


def test_a_field_of_a_later_schema_is_reported(tmp_path: Path) -> None:
    builder = flatbuffers.Builder(64)
    builder.StartObject(4)
    builder.PrependInt32Slot(3, 7, 0)  # SoftmaxOptions has one field
    builder.Finish(builder.EndObject())
    accessor = tflite.SoftmaxOptions.GetRootAs(bytes(builder.Output()), 0)
    assert list(Options("SoftmaxOptions", accessor).unread()) == [("field 3 of a later schema", "set")]


def test_options_of_another_operator(tmp_path: Path) -> None:
    error = error_of(tmp_path, single("SOFTMAX", [T(shape=(1, 2))], [T(shape=(1, 2))], "Pool2DOptions", stride_h=1))
    assert error.problems[0].message == "stores Pool2DOptions, which has no field beta"


def test_unknown_operator_codes(tmp_path: Path) -> None:
    error = error_of(tmp_path, single("222", [T(shape=(2,))], [T(shape=(2,))]))
    assert error.problems[0].op == "operator 222"


def test_unsupported_types(tmp_path: Path) -> None:
    error = error_of(tmp_path, single("ABS", [T(shape=(2,), type="COMPLEX64")], [T(shape=(2,), type="COMPLEX64")]))
    assert {problem.kind.heading for problem in error.problems} == {"unsupported data type"}


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    error = error_of(tmp_path, single("ADD", [T(shape=(2,)), T(shape=(3,))], [T(shape=(3,))], "AddOptions"))
    (problem,) = error.problems
    assert problem.kind.heading == "invalid node"
    assert "[2]" in problem.message
    assert "[3]" in problem.message


@pytest.mark.parametrize("spread", [1 << 40, (1 << 63) - 1])
def test_windows_over_more_than_there_can_be(tmp_path: Path, spread: int) -> None:
    """Elements between the elements of the input, in numbers that no memory holds and no index counts."""
    options = {
        "window_dimensions": [2, 2],
        "window_strides": [1, 1],
        "base_dilations": [spread, 1],
        "window_dilations": [1, 1],
        "padding": [0, 0, 0, 0],
    }
    body = S([T("a"), T("b"), T("c")], [O("STABLEHLO_ADD", [0, 1], [2])], [0, 1], [2])
    main = single(
        "STABLEHLO_REDUCE_WINDOW",
        [T(shape=(4, 9)), T(data=np.float32(0))],
        [T(shape=(3, 8))],
        "StablehloReduceWindowOptions",
        **options,
        body_subgraph_index=1,
    )
    (problem,) = error_of(tmp_path, main, body).problems
    assert problem.op == "STABLEHLO_REDUCE_WINDOW"


def test_custom_operators_come_from_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subgraph = single("CUSTOM:MyOp", [T(shape=(2,))], [T(shape=(2,))])
    error = error_of(tmp_path, subgraph)
    assert error.problems[0].op == "CUSTOM:MyOp"
    versions = registry("tflite")._versions
    monkeypatch.setattr(registry("tflite"), "_selected", {})
    converter = Registration("MyOp", "custom", 1, lambda node, g: g.add(Copy(), node.input(0)))
    monkeypatch.setitem(versions, ("custom", "MyOp"), {1: converter})
    assert ops(graph_of(tmp_path, subgraph)) == ["copy"]


def test_custom_operators_without_a_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin may leave the domain out, unless a builtin operator has the name."""
    subgraph = single("CUSTOM:MyOp", [T(shape=(2,))], [T(shape=(2,))])
    versions = registry("tflite")._versions
    monkeypatch.setattr(registry("tflite"), "_selected", {})
    converter = Registration("MyOp", "", 1, lambda node, g: g.add(Copy(), node.input(0)))
    monkeypatch.setitem(versions, ("", "MyOp"), {1: converter})
    assert ops(graph_of(tmp_path, subgraph)) == ["copy"]
    error_of(tmp_path, single("CUSTOM:RELU", [T(shape=(2,))], [T(shape=(2,))]))


def test_every_operator_without_a_place_says_why_and_what_to_do(tmp_path: Path) -> None:
    """Flex, custom, StableHLO and unknown operators in one report, each with a next step."""
    names = ("CUSTOM:FlexErf", "CUSTOM:MyOp", "STABLEHLO_CUSTOM_CALL", "RANDOM_UNIFORM", "HASHTABLE_FIND", "222")
    tensors = [T(f"t{i}", (2,)) for i in range(len(names) + 1)]
    operators = [O(name, [i], [i + 1]) for i, name in enumerate(names)]
    error = error_of(tmp_path, S(tensors, operators, [0], [len(names)]))
    found = {problem.op: (problem.message, problem.hint) for problem in error.problems}
    assert set(found) == {*names[:-1], "operator 222"}
    assert found["CUSTOM:FlexErf"][0] == "Erf of TensorFlow, which its Flex delegate runs"
    assert "SELECT_TF_OPS" in found["CUSTOM:FlexErf"][1]
    assert '@register_converter("tflite", "MyOp")' in found["CUSTOM:MyOp"][1]
    assert found["RANDOM_UNIFORM"][0] == "random numbers"
    assert "later schema" in found["operator 222"][0]
    assert all("no part of the model before it" in hint for _, hint in found.values())


def test_a_later_schema_matters_only_where_it_is_used(tmp_path: Path) -> None:
    tensors = [T("x", (2,)), T("y", (2,)), T("unused", (2,))]
    main = S(tensors, [O("ABS", [0], [1]), O("222", [0], [2])], [0], [1])
    other = S([T("a", (2,)), T("b", (2,))], [O("223", [0], [1])], [0], [1])
    assert ops(graph_of(tmp_path, main, other)) == ["active"]


def test_variables_need_an_operator_that_knows_them(tmp_path: Path) -> None:
    error = error_of(tmp_path, single("ABS", [T(shape=(2,), variable=True)], [T(shape=(2,))]))
    assert "keeps its value between runs" in error.problems[0].message


def test_cutting_the_model(tmp_path: Path) -> None:
    """The part before an unsupported operator converts by naming its output, the part after it by naming its input."""
    tensors = [T(name, (2,)) for name in "xabcy"]
    chain = [("ABS", 0), ("UNIQUE", 1), ("EXP", 2), ("NEG", 3)]
    subgraph = S(tensors, [O(name, [i], [i + 1]) for name, i in chain], [0], [4])
    error_of(tmp_path, subgraph)
    assert ops(graph_of(tmp_path, subgraph, outputs=["a"])) == ["active"]
    after = graph_of(tmp_path, subgraph, inputs=["b"])
    assert [port.name for port in after.input_ports] == ["b"]
    assert ops(after) == ["active", "muls"]
    with pytest.raises(UsageError, match="no tensor 'q'"):
        load(tmp_path / "model.tflite", outputs=["q"])


def test_input_shapes(tmp_path: Path) -> None:
    subgraph = single("ABS", [T("x", shape=(1, 2), signature=(-1, 2))], [T(shape=(1, 2))])
    graph = graph_of(tmp_path, subgraph)
    assert "input 'x' has the open shape [-1, 2]: axis 0 is fixed to 1" in graph.notes[0]
    assert "--input-shapes x=..." in graph.notes[0]
    graph = graph_of(tmp_path, subgraph, input_shapes={"x": (5, 2)})
    assert graph.output_ports[0].shape == (5, 2)
    assert not graph.notes
    for shapes, says in (({"z": (1,)}, "no input 'z'"), ({"x": (1,)}, "cannot have"), ({"x": (0, 2)}, "cannot have")):
        with pytest.raises(UsageError, match=says):
            load(tmp_path / "model.tflite", input_shapes=shapes)


def test_problems_behind_open_extents_name_the_input(tmp_path: Path) -> None:
    """An extent that was taken as 1 may be the cause of a problem of an operator that depends on it, and only there."""
    window = {"stride_h": 1, "stride_w": 1, "filter_height": 1, "filter_width": 4, "padding": 1}
    tensors = [
        T("x", (1, 1, 1, 1), signature=(-1, 1, -1, 1)),
        T("z", (1, 1, 1, 1)),
        T("a", (1, 1, 1, 1)),
        *(T(name, (1, 1, 1, 1)) for name in "pq"),
    ]
    operators = [
        O("ABS", [0], [2]),
        O("MAX_POOL_2D", [2], [3], "Pool2DOptions", window),
        O("MAX_POOL_2D", [1], [4], "Pool2DOptions", window),
    ]
    problems = list(error_of(tmp_path, S(tensors, operators, [0, 1], [3, 4])).problems)
    assert [problem.node for problem in problems] == ["p", "q"]
    assert "input 'x' has the open shape [-1, 1, -1, 1], taken as [1, 1, 1, 1]" in problems[0].hint
    assert "--input-shapes x=..." in problems[0].hint
    assert "--input-shapes" not in problems[1].hint


def test_an_input_without_elements(tmp_path: Path) -> None:
    subgraph = single("ABS", [T("x", shape=(0, 2))], [T(shape=(0, 2))])
    assert "holds no element" in str(error_of(tmp_path, subgraph))
    assert graph_of(tmp_path, subgraph, input_shapes={"x": (3, 2)}).outputs[0].shape == (3, 2)


def test_every_converter_has_a_sentence() -> None:
    registry("tflite").discover()
    assert [entry.name for entry in registry("tflite").entries() if not entry.converter.__doc__] == []


def test_version_3_only(tmp_path: Path) -> None:
    data = bytearray(serialize(single("ABS", [T(shape=(2,))], [T(shape=(2,))])))
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    model = read_model(path).model
    struct.pack_into("<I", data, model._tab.Pos + model._tab.Offset(4), 2)
    path.write_bytes(data)
    with pytest.raises(CorruptInputError, match="schema version 2, expected 3"):
        load(path)
