"""The table of modules that convert operators: it is what the modules register, and only those are loaded."""

import subprocess
import sys
from pathlib import Path

from onnx_models import model, one, ramp, saved

LOADED = """
import sys
from tpuconvert.frontends import onnx
onnx.load(sys.argv[1])
print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("tpuconvert.frontends.onnx.")))
"""


def test_is_what_the_modules_register() -> None:
    tool = Path(__file__).resolve().parents[2] / "tools" / "converter_modules.py"
    told = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_only_what_converts_the_operators_of_a_model_is_loaded(tmp_path: Path) -> None:
    path = saved(model([one("GlobalAveragePool", "x")], {"x": ramp(1, 2, 3, 3)}, ["y"]), tmp_path)
    told = subprocess.run([sys.executable, "-c", LOADED, str(path)], capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "global_pooling" in loaded
    assert not {"pooling", "recurrent", "resize", "attention", "sequences", "microsoft"} & set(loaded)
