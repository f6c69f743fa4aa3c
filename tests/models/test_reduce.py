"""``tpuconvert.reduce`` on models of the test data that cannot be converted without more options."""

from pathlib import Path

import pytest

import tpuconvert as tc


@pytest.mark.parametrize(("name", "operator", "nodes"), [("text_det_en_ppocrv3_onnx", "Add", 524)])
def test_symbolic_extents_are_reduced_to_the_node_that_refuses_them(
    name: str, operator: str, nodes: int, data_root: Path, tmp_path: Path
) -> None:
    found = tc.reduce(data_root / "models" / name / "model.onnx", until="error", output=tmp_path / "small.onnx")
    assert found.before.nodes == nodes
    assert found.operators == {operator: 1}
    assert found.names == "generic" and found.kept_weights == 0
    with pytest.raises(tc.UnsupportedError):
        tc.check(tmp_path / "small.onnx")
