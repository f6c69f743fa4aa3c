"""No command overwrites a file that it reads, whether through another path, a symbolic link or a hard link."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.cli.file_parameters import InputFile, OutputFile, OutputFolder
from tpuconvert.cli.group import COMMANDS, group
from tpuconvert.schema.errors import UsageError

Captured = pytest.CaptureFixture[str]

TEXTS = {
    "--append-nms",
    "--allow-root",  # a folder: its files are registered when they are read
    "--calibration-method",
    "--chip",
    "--decode",  # the same as --metric
    "--disable-rule",
    "--keep-float",
    "--prompt",
    "--system",
    "--precision",  # registers the rule file that @FILE names when it is read
    "--tokens",
    "--until",  # registers the file of a function; a command is the user's
    "--without",
    "--input-shapes",
    "--shapes",
    "--inputs",
    "--ignore",  # a path that is left out
    "--budget",
    "--match",
    "--metric",  # the function's file is registered when it is imported
    "--only",
    "--scheduler",
    "--outputs",
    "--scores",
    "--set",
    "--signature",
    "--threshold",
    "name",
    "--config",  # read before all other parameters, and registers its file then
}
"""Text parameters of any command that do not name a file."""


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


def word(parameter: click.Parameter) -> str:
    return parameter.opts[-1]


def test_every_parameter_with_a_file_says_if_it_is_read_or_written() -> None:
    texts = [
        (name, word(parameter))
        for name, command in commands()
        for parameter in command.params
        if not isinstance(parameter.type, InputFile | OutputFile | OutputFolder)
        and isinstance(parameter.type, click.types.StringParamType | click.Path | click.File)
    ]
    unknown = sorted((name, option) for name, option in texts if option not in TEXTS)
    assert unknown == [], "give it a type of tpuconvert.cli.file_parameters, or add it to TEXTS if it names no file"


CONVERSION = ["--preprocess", "rule.yaml", "--plugin", "plugin.py", "--config", "options.yaml"]
SAMPLES = ["--calibration", "samples.npz"]
CALLS: dict[str, list[str]] = {
    "convert": ["net.onnx", *SAMPLES, "--quantize", "int8", "--validate-on", "check.npz", *CONVERSION],
    "quantize": ["net.onnx", *SAMPLES, "--ranges", "ranges.json", *CONVERSION],
    "calibrate": ["net.onnx", *SAMPLES, *CONVERSION],
    "verify": ["net.onnx", "net.tpum", "--data", "samples.npz", *CONVERSION],
    "evaluate": ["int8.tpum", "--data", "samples.npz", "--unlabeled", "--reference", "net.tpum", "--metric", "top1"],
    "attribute": ["net.onnx", "int8.tpum", "--data", "check.npz", "--plugin", "plugin.py"],
    "diff": ["net.onnx", "net.tpum", "--data", "samples.npz", *CONVERSION],
    "tune": ["net.onnx", *SAMPLES, "--data", "check.npz", "--metric", "cosine", *CONVERSION],
    "inspect": ["net.onnx", "--plugin", "plugin.py"],
    "run": ["net.tpum", "x=samples.npz", "--preprocess", "rule.yaml", "--plugin", "plugin.py"],
    "reduce": ["net.onnx", "--until", "plugin.py:fails", *CONVERSION],
    "reproduce": ["net.onnx", "int8.tpum", *SAMPLES, "--plugin", "plugin.py"],
    "ci": ["manifest.yaml", "--jobs", "1"],
}
"""One call of every command that writes a file, with all the files that it can read."""

SUFFIXES = {"--output": ".tpum", "--html": ".html", "--report": ".txt", "--dump-after": ".txt"}
READ_BESIDES = {"ci": ["net.onnx", "samples.npz", "check.npz", "plugin.py", "net.tpum"]}
"""Files named in a manifest."""


def writing() -> list[tuple[str, str]]:
    """Command and option of every output file."""
    return [
        (name, word(parameter))
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter.type, OutputFile)
    ]


def test_calls_cover_every_command_that_writes_a_file() -> None:
    assert {name for name, _ in writing()} == set(CALLS)


@pytest.fixture(scope="module")
def all_files(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A folder with every kind of file that commands read."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        network("net.onnx")
        rng = np.random.default_rng(0)
        for name in ("samples.npz", "check.npz"):
            np.savez(name, x=rng.normal(size=(4, 1, 4)).astype(np.float32))
        Path("rule.yaml").write_text("color: RGB\n")
        Path("plugin.py").write_text("")
        Path("options.yaml").write_text("chip: bm1686\n")
        assert main(["convert", "net.onnx", "-o", "net.tpum"]) == 0
        int8 = ["--quantize", "int8", "--calibration", "samples.npz"]
        assert main(["convert", "net.onnx", "-o", "int8.tpum", *int8]) == 0
        assert main(["calibrate", "net.onnx", "--calibration", "samples.npz", "-o", "ranges.json"]) == 0
        entry = {"source": "net.onnx", "data": "samples.npz", "calibration": "check.npz", "quantize": "int8"}
        models = {"net": {**entry, "baseline": "net.tpum"}}
        Path("manifest.yaml").write_text(yaml.safe_dump({"plugins": ["plugin.py"], "models": models}))
    return folder


def network(path: str, external: str = "") -> None:
    """A model with one matmul. The weights are in an external file if one is given."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32) + np.float32(0.5), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=bool(external), location=external or None, size_threshold=0)


@pytest.fixture
def files(all_files: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Copies of these files in the test's folder, with their contents."""
    monkeypatch.delitem(sys.modules, "tpuconvert_plugin_plugin", raising=False)  # remove the copy of an earlier test
    for file in all_files.iterdir():
        if file.is_file():
            shutil.copy2(file, own_folder / file.name)
    return {file.name: file.read_bytes() for file in own_folder.iterdir()}


def hard_link(source: Path, target: Path) -> None:
    os.link(source, target)


def link(source: Path, target: Path) -> None:
    target.symlink_to(source.name)


def folder_link(source: Path, target: Path) -> None:
    """The same folder under another name, and a symbolic link in it."""
    target.symlink_to(source.absolute())


LINKS: list[Callable[[Path, Path], None]] = [hard_link, link, folder_link]


@pytest.mark.parametrize(("name", "option"), writing())
def test_no_output_takes_the_place_of_an_input(
    name: str, option: str, files: dict[str, bytes], capsys: Captured
) -> None:
    call = [name, *CALLS[name]]
    suffix = {
        "run": ".npz",
        "calibrate": ".json",
    }.get(name, SUFFIXES.get(option, ".txt"))
    read = [path for text in CALLS[name] if Path(path := text.rpartition("=")[2]).is_file()]
    assert len(read) >= 1
    capsys.readouterr()
    for number, path in enumerate((*read, *READ_BESIDES.get(name, ()))):
        make = LINKS[number % len(LINKS)]
        for target in (path, f"./{path}", f"link{number}{suffix}"):
            if target.startswith("link"):
                make(Path(path), Path(target))
            given = f"canonicalize={target}" if option == "--dump-after" else target
            code = main([*call, option, given])
            complaint = capsys.readouterr().err
            assert code == 2, (target, complaint)
            if target.startswith("link"):
                assert f"{target}: this file is read, and would be replaced" in complaint
            assert {file: Path(file).read_bytes() for file in files} == files, f"{target} replaced {path}"


@pytest.mark.parametrize("make", LINKS)
def test_external_data_are_kept(make: Callable[[Path, Path], None], capsys: Captured) -> None:
    network("net.onnx", "weights.bin")
    before = Path("weights.bin").read_bytes()
    make(Path("weights.bin"), Path("out.tpum"))
    for call in (["convert", "net.onnx", "-o", "out.tpum"], ["inspect", "net.onnx", "--html", "out.html"]):
        if "out.html" in call:
            os.rename("out.tpum", "out.html")
        assert main(call) == 2
        assert "this file is read, and would be replaced by the result" in capsys.readouterr().err
        assert Path("weights.bin").read_bytes() == before


def test_calibration_images_are_kept(capsys: Captured, digits: Path) -> None:
    Path("images").mkdir()
    for name in ("a", "b"):
        Image.fromarray(np.full((8, 8), 7, np.uint8)).save(f"images/{name}.png")
    before = Path("images/b.png").read_bytes()
    os.link("images/b.png", "out.tpum")
    options = ["--quantize", "int8", "--calibration", "images", "--preprocess", "color=GRAY,scale=0.0625"]
    assert main(["convert", str(digits / "digits.onnx"), "-o", "out.tpum", *options]) == 2
    assert "this file is read, and would be replaced by the result" in capsys.readouterr().err
    assert Path("images/b.png").read_bytes() == before


def test_other_files_beside_calibration_images_may_be_replaced(digits: Path) -> None:
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save("a.png")
    options = ["--quantize", "int8", "--calibration", ".", "--preprocess", "color=GRAY,scale=0.0625"]
    for _ in range(2):
        assert main(["convert", str(digits / "digits.onnx"), "-o", "out.tpum", *options]) == 0


@pytest.mark.parametrize("make", LINKS)
def test_saving_in_python_keeps_what_the_model_was_converted_from(
    make: Callable[[Path, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tpuconvert_plugin_plugin", raising=False)  # remove the copy of an earlier test
    network("net.onnx", "weights.bin")
    samples = np.random.default_rng(0).normal(size=(4, 1, 4)).astype(np.float32)
    np.save("samples.npy", samples)
    Path("plugin.py").write_text("")
    model = tc.convert("net.onnx", quantize="int8", calibration="samples.npy", plugins=["plugin.py"])
    for name in ("net.onnx", "weights.bin", "samples.npy", "plugin.py"):
        before = Path(name).read_bytes()
        make(Path(name), Path("out.tpum"))
        for target in (name, "out.tpum"):
            with pytest.raises(UsageError, match="this file is read, and would be replaced by the result"):
                model.save(target)
            assert Path(name).read_bytes() == before
        Path("out.tpum").unlink()
    model.save("out.tpum")
    tc.load("out.tpum").save("out.tpum")  # a loaded model may be saved to the file that it was loaded from


@pytest.mark.parametrize(
    "call",
    [
        ["convert", "net.onnx", "-o", "out.tpum", "--report", "./out.tpum"],
        ["convert", "net.onnx", "-o", "out.txt", "--dump-after", "canonicalize=out.txt"],
        ["ci", "manifest.yaml", "--junit", "out.xml", "--markdown", "folder/../out.xml"],
    ],
)
def test_two_outputs_of_one_name(call: list[str], files: dict[str, bytes], capsys: Captured) -> None:
    Path("folder").mkdir()
    assert main(call) == 2
    assert "name the same file" in capsys.readouterr().err
    assert not Path(call[-1]).exists()
