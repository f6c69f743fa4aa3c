"""The message classes are those of the ``onnx`` package, whichever is loaded first, and loading them stays small."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS = "from tpuconvert.frontends.onnx import messages"


@pytest.mark.parametrize("imports", [f"import onnx; {OURS}", f"{OURS}; import onnx"])
def test_same_classes(imports: str) -> None:
    same = "assert onnx.ModelProto is messages.ModelProto and onnx.TensorProto is messages.TensorProto"
    code = f"{imports}; {same}; onnx.helper.make_graph([], 'g', [], [])"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_a_model_does_not_load_the_package() -> None:
    code = "import sys; import tpuconvert.frontends.onnx.importer; assert 'onnx.checker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
