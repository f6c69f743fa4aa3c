"""The table of modules that convert operators: it is what the modules register, and only those are loaded."""

import subprocess
import sys
from pathlib import Path

from onnx_models import model, one, ramp, saved

LOADED = """
import sys
from tpuconvert.frontends import onnx
onnx.load(sys.argv[1])
for package in ("tpuconvert.frontends.onnx.", "tpuconvert.schema.ops."):
    print(*(name.removeprefix(package) for name in sys.modules if name.startswith(package)))
"""


def test_is_what_the_modules_register() -> None:
    tool = Path(__file__).resolve().parents[2] / "tools" / "converter_modules.py"
    told = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_only_what_converts_the_operators_of_a_model_is_loaded(tmp_path: Path) -> None:
    path = saved(model([one("GlobalAveragePool", "x")], {"x": ramp(1, 2, 3, 3)}, ["y"]), tmp_path)
    told = subprocess.run([sys.executable, "-c", LOADED, str(path)], capture_output=True, text=True, check=True)
    converters, definitions = (line.split() for line in told.stdout.splitlines())
    assert "global_pooling" in converters
    assert not {"pooling", "recurrent", "resize", "attention", "sequences", "microsoft"} & set(converters)
    assert not {"fold_arithmetic", "fold_shapes"} & set(converters)  # the input is no constant
    assert definitions == ["pool"]
