"""``convert --config`` and ``--set``: options from YAML. The command line takes precedence."""

import shutil
from pathlib import Path

import pytest
import yaml

import tpuconvert as tc
from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def configuration(digits: Path) -> dict[str, object]:
    """Write the network, its samples and tpuconvert.yaml to ``models``; return the options in the YAML file."""
    Path("models").mkdir()
    for name in ("digits.onnx", "calibration.npz"):
        shutil.copy(digits / name, "models")
    content: dict[str, object] = {
        "model": "digits.onnx",
        "output": "net.tpum",
        "chip": "bm1684",
        "quantize": "int8",
        "calibration": "calibration.npz",
        "preprocess": {"color": "GRAY", "scale": [0.0625]},
        "input-shapes": {"image": [1, 1, 8, 8]},
        "strict_set": True,
        "disable_rule": ["fold_batchnorm"],
    }
    write(content)
    return content


def write(content: object) -> None:
    Path("models/tpuconvert.yaml").write_text(yaml.safe_dump(content))


def test_everything_from_a_file(configuration: dict[str, object]) -> None:
    del configuration["disable_rule"]
    write(configuration)
    assert main(["convert", "--config", "models/tpuconvert.yaml"]) == 0
    call = ["convert", "models/digits.onnx", "-o", "typed.tpum", "--chip", "bm1684", "--quantize", "int8"]
    call += ["--calibration", "models/calibration.npz", "--preprocess", "color=GRAY,scale=0.0625", "--strict-set"]
    assert main([*call, "--input-shapes", "image=1,1,8,8"]) == 0
    assert Path("models/net.tpum").read_bytes() == Path("typed.tpum").read_bytes()


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize("config_first", [True, False])
def test_what_wins(config_first: bool) -> None:
    """The command line overrides --set, and --set overrides the file, in any order."""
    config, settings = ["--config", "models/tpuconvert.yaml"], ["--set", "chip=bm1682", "--set", "preprocess.scale=0.5"]
    both = [*config, *settings] if config_first else [*settings, *config]
    only = ["--set", "disable-rule=[]", "--chip", "bm1686", "-o", "net.tpum"]
    assert main(["convert", *both, *only]) == 0
    model = tc.load("net.tpum")
    assert model.chip is tc.Chip.BM1686
    assert "color=GRAY" in str(model.preprocess)
    assert "scale=0.5" in str(model.preprocess)


def test_settings_alone(digits: Path) -> None:
    source = str(digits / "digits.onnx")
    assert main(["convert", source, "--set", "output=net.tpum", "--set", "outputs=[conv1]"]) == 0
    assert [port.name for port in tc.load("net.tpum").outputs] == ["conv1"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"quantze": "int8"}, "models/tpuconvert.yaml: unknown option 'quantze'\n    did you mean 'quantize'?"),
        ({"quantize": "int4"}, "'int4' is not one of"),
        ({"strict_set": "maybe"}, "strict_set: 'maybe' is neither true nor false"),
        ({"max_transposes": "few"}, "'few' is not a valid integer"),
        ({"disable_rule": ["no_such_rule"]}, "no_such_rule"),
        ({"models": {"a": {}}}, "tpuconvert ci models/tpuconvert.yaml"),
        ({"config": "other.yaml"}, "unknown option 'config'"),
        ({"calibration": "absent.npz"}, "models/absent.npz: no such file"),
    ],
)
def test_wrong_files(
    change: dict[str, object], complaint: str, configuration: dict[str, object], capsys: Captured
) -> None:
    del configuration["disable_rule"]
    write({**configuration, **change})
    assert main(["convert", "--config", "models/tpuconvert.yaml"]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert shown.err.startswith("error[TC2001]: ")


@pytest.mark.usefixtures("configuration")
def test_wrong_calls(capsys: Captured) -> None:
    assert main(["convert", "--config", "absent.yaml"]) == 2
    assert "absent.yaml: no such file" in capsys.readouterr().err
    for text in ("[1, 2", "- 1", "\x00"):
        Path("bad.yaml").write_text(text)
        assert main(["convert", "--config", "bad.yaml"]) == 2
        assert "bad.yaml: is not " in capsys.readouterr().err
    for setting in ("chip", "=bm1684", "chipp=bm1684", "chip=[", "chip.a=1"):
        assert main(["convert", "models/digits.onnx", "--set", setting]) == 2, setting
        assert "--set" in capsys.readouterr().err or setting == "chip.a=1"
    assert list(Path().glob("*.tpum")) == []


@pytest.mark.usefixtures("configuration")
def test_other_commands_take_the_same_file(capsys: Captured) -> None:
    """Options that only ``convert`` has are ignored by the other commands. ``output`` belongs to ``convert``."""
    config = ["--config", "models/tpuconvert.yaml", "--set", "disable-rule=[]"]
    assert main(["check", *config]) == 0
    assert "can be converted for BM1684" in capsys.readouterr().out
    assert main(["calibrate", *config, "-o", "ranges.json"]) == 0
    assert main(["quantize", *config, "--ranges", "ranges.json", "-o", "q.tpum"]) == 0
    assert tc.load("q.tpum").chip is tc.Chip.BM1684
    assert main(["verify", *config, "models/digits.onnx", "q.tpum", "--data", "models/calibration.npz"]) == 0


@pytest.mark.usefixtures("configuration")
@pytest.mark.parametrize("command", ["check", "calibrate", "quantize", "verify"])
def test_other_commands_know_what_no_command_has(command: str, capsys: Captured) -> None:
    assert main([command, "--set", "colr=RED", "models/digits.onnx"]) == 2
    shown = capsys.readouterr().err
    assert "--set: unknown option 'colr'" in shown
    keys = shown.split("one of ")[1].strip().split(", ")
    assert {"input_shapes", "json", "plugin"} < set(keys)  # one name of each option, as in its help
    assert not {"o", "as_json", "plugins", "page"} & set(keys)
