"""The ONNX Backend interface."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tpuconvert.conversion.onnx_backend as backend
from tests.support.onnx.models import model, one, ramp
from tools.exactness import onnx_conformance
from tools.pages.generated_file import replace_part
from tpuconvert.schema.errors import UnsupportedError, UsageError
from tpuconvert.schema.types import Array


def test_prepare_and_run(tmp_path: Path) -> None:
    x = ramp(2, 3)
    proto = model([one("Relu", "x", outputs=["r"]), one("Neg", "r", outputs=["n"])], {"x": x}, ["n", "r"])
    prepared = backend.prepare(proto)
    for inputs in (x, [x], (x,), {"x": x}):
        outputs = prepared.run(inputs)
        assert np.array_equal(outputs[1], np.maximum(x, 0))
        assert np.array_equal(outputs.n, -outputs.r)  # type: ignore[attr-defined]  # a named tuple
    assert np.array_equal(backend.run_model(proto, [x])[0], outputs[0])


def test_run_node() -> None:
    x = ramp(2, 3, 4)
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    flat = np.exp(x).reshape(2, 12)
    expected = (flat / flat.sum(1, keepdims=True)).reshape(2, 3, 4)
    np.testing.assert_allclose(backend.run_node(node, [x], opset_version=11)[0], expected, rtol=1e-5)
    newest = backend.run_node(node, [x])[0]
    np.testing.assert_allclose(newest.sum(1), np.ones((2, 4)), rtol=1e-6)


def test_integer_inputs_that_decide_shapes() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    x = ramp(2, 6)
    assert backend.run_node(node, [x, np.array([3, 4])])[0].shape == (3, 4)
    proto = model([node], {"x": x, "shape": np.zeros(2, np.int64)}, ["y"])
    prepared = backend.prepare(proto)
    assert prepared.run([x, np.array([4, 3])])[0].shape == (4, 3)
    assert prepared.run([x, np.array([-1, 2])])[0].shape == (6, 2)


def test_open_shapes_are_those_of_the_run() -> None:
    proto = model([one("Relu", "x")], {"x": ramp(1)}, ["y"])
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "width"]))
    prepared = backend.prepare(proto)
    for shape in ((2, 3), (4, 5), (2, 3)):
        assert prepared.run(ramp(*shape))[0].shape == shape


def test_options_reach_the_conversion() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"])
    x = np.array([0.0, 0.5, 1.2], np.float32)
    constants = {"s": np.float32(0.1)}
    proto = model([node], {"x": x}, ["y"], constants)
    assert backend.run_model(proto, x, chip="bm1684")[0].tolist() == [0, 5, 12]


@pytest.mark.slow
def test_caches_are_inputs_and_outputs() -> None:
    cases = {case.name: case for case in onnx_conformance.load_cases(("node",))}
    case = cases.get("test_causal_conv_with_state_decode_step")
    if case is None:
        pytest.skip(f"the suite of onnx {onnx.__version__} does not have the case")
    found = onnx_conformance.run_case(case, 60, {"backend": "reference"})
    assert found.outcome in onnx_conformance.PASSED, found.detail


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Bernoulli"):
        backend.run_node(helper.make_node("Bernoulli", ["x"], ["y"]), [ramp(2)])
    assert not backend.is_compatible(model([one("Multinomial", "x")], {"x": ramp(2, 3)}, ["y"]))
    assert backend.is_compatible(model([one("Relu", "x")], {"x": ramp(2, 3)}, ["y"]))
    proto = model([one("Relu", "x")], {"x": ramp(2)}, ["y"])
    with pytest.raises(UsageError, match="only CPU"):
        backend.prepare(proto, "CUDA")
    with pytest.raises(UsageError, match="2 arrays for 1 inputs"):
        backend.prepare(proto).run([ramp(2), ramp(2)])
    with pytest.raises(UsageError, match="0 arrays for 1 inputs"):
        backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [])


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert backend.supports_device("cpu:0")
    assert not backend.supports_device("CUDA")


def stored_outcomes() -> onnx_conformance.Store:
    """The stored outcomes; skips the test if they are about another version of onnx."""
    store = onnx_conformance.read_store()
    if store.version != onnx.__version__:
        pytest.skip(f"the stored outcomes are about onnx {store.version}, not {onnx.__version__}")
    return store


@pytest.mark.slow
def test_conformance() -> None:
    """Every case of the ONNX test suite has the stored outcome, also with the native engine."""
    store = stored_outcomes()
    cases = onnx_conformance.load_cases(("node", *onnx_conformance.FILE_KINDS))
    assert {case.name for case in cases} == set(store.reference)
    outcomes = [onnx_conformance.run_case(case, 60, {"backend": "reference"}) for case in cases]
    native = onnx_conformance.native_outcomes(cases, outcomes, 60, "bm1686")
    assert onnx_conformance.changes(outcomes, store.reference) == [], "run tools/exactness/onnx_conformance.py --write"
    assert onnx_conformance.changes(native, store.native) == [], "run tools/exactness/onnx_conformance.py --write"


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_sample_of_conformance_cases(every: int) -> None:
    """A case of each sixth operator has its stored outcome; one that is listed as passing and fails is an error."""
    store = stored_outcomes()
    cases = onnx_conformance.load_cases(("node",))
    sample = onnx_conformance.sample(cases, store.reference)
    assert len({name for case in sample for name in onnx_conformance.operators_of(case)}) > 190
    outcomes = [onnx_conformance.run_case(case, 60, {"backend": "reference"}) for case in sample[::every]]
    assert onnx_conformance.changes(outcomes, store.reference) == [], "run tools/exactness/onnx_conformance.py --write"


def test_conformance_page_is_made_from_the_stored_outcomes() -> None:
    store = onnx_conformance.read_store()
    text = onnx_conformance.markdown(store)
    made = replace_part(onnx_conformance.PAGE, "conformance", onnx_conformance.TOOL, text)
    page = onnx_conformance.PAGE.read_text(encoding="utf-8")
    assert page == made, "run tools/exactness/onnx_conformance.py --write"
    failed = {
        o.name for o in (*store.reference.values(), *store.native.values()) if o.outcome in onnx_conformance.FAILED
    }
    assert failed <= set(onnx_conformance.KNOWN)
    assert all(outcome.reason for outcome in store.reference.values() if outcome.outcome == "refused")
    assert sum(outcome.outcome in onnx_conformance.PASSED for outcome in store.reference.values()) >= 1700


def test_changed_outcomes_are_reported() -> None:
    def outcome(kind: str, detail: str = "") -> onnx_conformance.Outcome:
        return onnx_conformance.Outcome("a", "node", kind, detail=detail)

    assert onnx_conformance.changes([outcome("direct")], {"a": outcome("direct")}) == []
    assert onnx_conformance.changes([outcome("mismatch", "2 of 3")], {"a": outcome("direct")}) == [
        "a: mismatch; stored: direct: 2 of 3"
    ]
    assert onnx_conformance.changes([outcome("direct")], {}) == ["a: direct, not stored"]


def test_outcomes_of_conformance_cases(tmp_path: Path) -> None:
    """Outcomes are distinguished: passed, rejected, different values, too slow."""
    x = ramp(2, 3)
    shape = np.array([3, 2])

    def outcome(proto: onnx.ModelProto, feeds: list[Array], expected: Array, seconds: float = 60) -> str:
        case = SimpleNamespace(
            name="test_it", kind="node", model=proto, data_sets=[(feeds, [expected])], rtol=1e-3, atol=0
        )
        return onnx_conformance.run_case(case, seconds, {"backend": "reference"}).outcome

    relu = model([one("Relu", "x")], {"x": x}, ["y"])
    assert outcome(relu, [x], np.maximum(x, 0)) == "direct"
    assert outcome(relu, [x], x + 1) == "mismatch"
    assert outcome(relu, [x], np.maximum(x, 0), 1e-6) == "timeout"
    reshape = model([one("Reshape", "x", "s")], {"x": x, "s": shape}, ["y"])
    assert outcome(reshape, [x, shape], x.reshape(3, 2)) == "specialized"
    window = model([one("HannWindow", "n")], {"n": np.array(4)}, ["y"])
    assert outcome(window, [np.array(4)], np.array([0, 0.5, 1, 0.5], np.float32)) == "evaluated"
    assert outcome(model([one("Multinomial", "x")], {"x": x}, ["y"]), [x], x) == "refused"
    log = tmp_path / "log"
    log.write_text('{"begun": "a", "kind": "node"}\n{"begun": "b", "kind": "node"}\n'
                   '{"name": "b", "kind": "node", "outcome": "direct"}\n')  # fmt: skip
    known = onnx_conformance.resume(log)
    assert (known["a"].reason, known["b"].outcome) == ("crash: the process ended", "direct")
    store = tmp_path / "store.json"
    onnx_conformance.write_store(onnx_conformance.Store("1", known, {}), store)
    assert onnx_conformance.read_store(store) == onnx_conformance.Store("1", known, {})
    assert "| passed | 1 |" in onnx_conformance.markdown(onnx_conformance.read_store(store))


def test_saved_model_runs_the_same(tmp_path: Path) -> None:
    x = ramp(1, 2, 4, 4)
    proto = model([one("Conv", "x", "w")], {"x": x}, ["y"], {"w": ramp(3, 2, 3, 3, seed=1)})
    onnx.save(proto, tmp_path / "m.onnx")
    assert np.array_equal(backend.run_model(proto, x)[0], backend.run_model(onnx.load(tmp_path / "m.onnx"), x)[0])


def test_only_inputs_that_are_asked_for_become_constants() -> None:
    x, shape, other = ramp(2, 6), np.array([3, 4]), np.array([[1, 2, 3, 4]], np.int32)
    nodes = [one("Reshape", "x", "s", outputs=["r"]), one("Add", "n", "n", outputs=["m"])]
    prepared = backend.prepare(model(nodes, {"x": x, "s": shape, "n": other}, ["r", "m"]), backend="reference")
    found = prepared.run([x, shape, other])
    assert found.r.shape == (3, 4)  # type: ignore[attr-defined]  # a named tuple
    assert prepared.known_inputs == ("s",)
    assert set(prepared.open_inputs) == {"x", "n"}


def test_inputs_without_elements_and_types_that_numpy_lacks() -> None:
    x = ramp(2, 3)
    node = one("CastLike", "x", "like")
    proto = model([node], {"x": x, "like": np.zeros(0, np.float32)}, ["y"], opset=19)
    bfloat16 = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.BFLOAT16
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 3]))
    (found,) = backend.run_model(proto, [x, np.zeros(0, bfloat16)])
    assert found.dtype == bfloat16
    np.testing.assert_allclose(found.astype(np.float32), x, rtol=2**-8)
    wide = model([one("Neg", "x")], {"x": np.zeros(2)}, ["y"])
    with pytest.raises(UsageError, match="beyond FLOAT32"):
        backend.run_model(wide, np.array([1.0, 1e200]))
