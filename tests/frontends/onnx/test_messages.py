"""The frontend reads ONNX files with the message classes of the ``onnx`` package."""

import subprocess
import sys

import pytest

FRONTEND = "from tpuconvert.frontends.onnx.file import messages"


def run(*lines: str) -> None:
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize("order", [("import onnx", FRONTEND), (FRONTEND, "import onnx")])
@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_uses_the_classes_of_the_package(
    order: tuple[str, str], implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", implementation)
    run(
        *order,
        "names = [name for name in vars(messages) if name.endswith('Proto')]",
        "assert len(names) == 9",
        "for name in names: assert getattr(messages, name) is getattr(onnx, name), name",
        "assert messages.ModelProto().graph.node.add().__class__ is onnx.NodeProto",
        "assert onnx.onnx_ml_pb2.ModelProto is onnx.ModelProto",
    )


def test_does_not_import_the_rest_of_the_package() -> None:
    run("import sys", FRONTEND, "assert not [name for name in sys.modules if name.partition('.')[0] == 'onnx']")


@pytest.mark.parametrize("model", ["digits.tflite", "digits.prototxt"])
def test_other_formats_load_no_onnx_messages(model: str, repository, tmp_path) -> None:
    source = repository / "examples" / "digits" / model
    weights = [str(source.with_suffix(".caffemodel"))] if source.suffix == ".prototxt" else []
    run(
        "import sys, tpuconvert.__main__",
        f"assert tpuconvert.__main__.main({['convert', str(source), *weights, '-o', str(tmp_path / 'x.tpum')]}) == 0",
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'onnx']",
        "assert 'tpuconvert.frontends.onnx.file.messages' not in sys.modules",
    )
