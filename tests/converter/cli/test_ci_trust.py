"""``tpuconvert ci`` keeps its inputs, verifies its cache, confines file access, and continues after an error."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.ci import cache, runner
from tpuconvert.ci.measures import Measurement
from tpuconvert.conversion.source import Source

Captured = pytest.CaptureFixture[str]
CACHE = Path(".tpuconvert-cache")


def network(path: str, value: float = 0.5, external: str = "") -> None:
    """A model with one matmul. The weights are in an external file if one is given."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32) + np.float32(value), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=bool(external), location=external or None, size_threshold=0)


def manifest(models: dict[str, dict[str, object]], **top: object) -> None:
    Path("tpuconvert.yaml").write_text(yaml.safe_dump({**top, "models": models}, sort_keys=False))


def statuses(capsys: Captured, *words: str) -> tuple[int, dict[str, str]]:
    """Exit code, and the status with the error or note of every model."""
    code = main(["ci", "--jobs", "1", "--json", *words])
    shown = capsys.readouterr()
    models = json.loads(shown.out)["models"]
    texts = ((each["status"], each["note"], (each["error"] or {}).get("message")) for each in models)
    return code, {each["name"]: " ".join(filter(None, parts)) for each, parts in zip(models, texts, strict=True)}


def entries(suffix: str) -> list[Path]:
    return sorted(path for path in CACHE.rglob(f"*{suffix}") if not path.name.startswith("."))


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_output_that_is_a_source_is_refused(link: object, capsys: Captured) -> None:
    network("a.onnx")
    network("b.onnx", 0.25)
    before = {name: Path(name).read_bytes() for name in ("a.onnx", "b.onnx")}
    outputs = ("a.tpum", "b.tpum") if link else ("a.onnx", "b.onnx")
    if callable(link):
        for source, target in zip(("b.onnx", "a.onnx"), outputs, strict=True):
            link(source, target)
    manifest({name[0]: {"source": f"{name[0]}.onnx", "output": name} for name in outputs})
    if link is None:
        assert main(["ci"]) == 2
        assert "what is written is not a .onnx file" in capsys.readouterr().err
    else:
        for _ in range(2):  # built, and then taken from the cache
            code, found = statuses(capsys)
            assert code == 2
            assert all("this file is read, and would be replaced by the result" in text for text in found.values())
    assert {name: Path(name).read_bytes() for name in before} == before


def test_output_that_is_an_input_of_another_model(capsys: Captured) -> None:
    network("a.onnx", external="weights.bin")
    before = Path("weights.bin").read_bytes()
    network("b.onnx", 0.25)
    os.link("weights.bin", "b.tpum")
    manifest({"b": {"source": "b.onnx", "output": "b.tpum"}, "a": {"source": "a.onnx"}})
    code, found = statuses(capsys)
    assert (code, found["a"]) == (2, "made")
    assert "this file is read" in found["b"]
    assert Path("weights.bin").read_bytes() == before


def test_two_models_with_one_output_under_two_names(capsys: Captured) -> None:
    network("a.onnx")
    Path("real").mkdir()
    Path("link").symlink_to("real")
    manifest({"a": {"source": "a.onnx", "output": "real/x.tpum"}, "b": {"source": "a.onnx", "output": "link/x.tpum"}})
    assert main(["ci"]) == 2
    assert "models.b.output: a writes the same file" in capsys.readouterr().err


def test_report_that_is_the_output_of_a_model(capsys: Captured) -> None:
    network("a.onnx")
    manifest({"a": {"source": "a.onnx", "output": "a.tpum"}})
    assert main(["ci", "--junit", "./a.tpum"]) == 2
    assert "is the output of the model 'a'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "key", sampled(["source", "calibration", "data", "evaluation", "baseline", "preprocess", "allow_root"], every=2)
)
def test_missing_file_of_one_model_keeps_no_other_from_being_made(key: str, capsys: Captured) -> None:
    network("a.onnx")
    missing = {"source": "a.onnx", key: "absent.yaml"}
    if key == "calibration":
        missing["quantize"] = "int8"
    manifest({"broken": missing, "whole": {"source": "a.onnx", "output": "whole.tpum"}})
    code, found = statuses(capsys)
    assert code == 2
    assert found["broken"].startswith("error") and "absent.yaml" in found["broken"]
    assert found["whole"] == "made"
    assert Path("whole.tpum").is_file()


def test_internal_error_of_one_model_keeps_no_other_from_being_made(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpuconvert.ci import measures

    network("a.onnx")
    network("b.onnx", 0.25)
    original = measures.verify_source

    def fail(model: object, source: Source, *arguments: object, **keywords: object) -> object:
        if Path(source.name).name == "a.onnx":
            raise ZeroDivisionError("a mistake of ours")
        return original(model, source, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(measures, "verify_source", fail)
    manifest({"a": {"source": "a.onnx"}, "b": {"source": "b.onnx"}})
    code, found = statuses(capsys)
    assert code == 1
    assert found["a"].startswith("error") and "ZeroDivisionError" in found["a"]
    assert found["b"] == "made"
    assert [path.name for path in CACHE.rglob(".*")] == [], "nothing half-written"


def _garbage(model: Path, description: Path) -> None:
    model.write_bytes(b"garbage")


def _one_bit(model: Path, description: Path) -> None:
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)


def _foreign_link(model: Path, description: Path) -> None:
    Path("foreign").write_bytes(b"a file outside the cache")
    model.unlink()
    model.symlink_to(Path("foreign").absolute())


def _link_to_equal_bytes(model: Path, description: Path) -> None:
    shutil.copy2(model, "foreign")
    model.unlink()
    model.symlink_to(Path("foreign").absolute())


def _fifo(model: Path, description: Path) -> None:
    model.unlink()
    os.mkfifo(model)


def _other_measures(model: Path, description: Path) -> None:
    description.write_text(description.read_text().replace('"transposes": 0', '"transposes": 1'))


def _no_json(model: Path, description: Path) -> None:
    description.write_text("[" * 100_000)


def _list(model: Path, description: Path) -> None:
    description.write_text("[1, 2]")


def _entry_of_another_model(model: Path, description: Path) -> None:
    others = [path for path in entries(".tpum") if path != model]
    shutil.copy2(others[0], model)
    shutil.copy2(others[0].with_suffix(".json"), description)


DAMAGE = [
    _garbage,
    _one_bit,
    _foreign_link,
    _link_to_equal_bytes,
    _fifo,
    _other_measures,
    _no_json,
    _list,
    _entry_of_another_model,
]


@pytest.mark.parametrize("damage", sampled(DAMAGE))
def test_damaged_entry_of_the_cache_is_made_again(damage: object, capsys: Captured) -> None:
    network("a.onnx")
    manifest({"a": {"source": "a.onnx", "output": "a.tpum"}})
    assert statuses(capsys) == (0, {"a": "made"})
    wanted = Path("a.tpum").read_bytes()
    [model] = entries(".tpum")
    network("b.onnx", 0.25)
    manifest({"b": {"source": "b.onnx"}})
    assert statuses(capsys) == (0, {"b": "made"})
    manifest({"a": {"source": "a.onnx", "output": "a.tpum"}})
    assert statuses(capsys) == (0, {"a": "cached"})
    Path("a.tpum").unlink()
    assert callable(damage)
    damage(model, model.with_suffix(".json"))
    foreign = Path("foreign").read_bytes() if Path("foreign").exists() else b""
    code, found = statuses(capsys)
    assert code == 0
    assert found["a"].startswith("made the cache has an entry that cannot be used: ")
    assert Path("a.tpum").read_bytes() == wanted
    assert not model.is_symlink() and model.read_bytes() == wanted
    assert not foreign or Path("foreign").read_bytes() == foreign
    assert statuses(capsys) == (0, {"a": "cached"})


def test_entry_with_the_recipe_of_another_source_is_made_again(capsys: Captured) -> None:
    """Matching digests are not sufficient: the files of this cache entry were replaced and its digests recomputed."""
    for name, value in (("a", 0.5), ("b", 0.25)):
        network(f"{name}.onnx", value)
        manifest({name: {"source": f"{name}.onnx", "output": f"{name}.tpum"}})
        assert statuses(capsys)[0] == 0
    wanted = Path("b.tpum").read_bytes()
    digests = {path: path.read_bytes() for path in entries(".tpum")}
    [mine] = [path for path, content in digests.items() if content == wanted]
    [other] = [path for path in digests if path != mine]
    store = cache.Cache(CACHE)
    shutil.copy2(other, "copy.tpum")
    entry = json.loads(mine.with_suffix(".json").read_text())["entry"]
    store.keep(mine.stem, Path("copy.tpum"), Measurement(entry["measures"], entry["sections"]))
    code, found = statuses(capsys)
    assert code == 0
    assert "another source" in found["b"]
    assert Path("b.tpum").read_bytes() == wanted


def test_source_that_changes_while_a_model_is_made_is_not_kept(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    network("a.onnx")
    manifest({"a": {"source": "a.onnx", "output": "a.tpum"}})
    original = runner.convert_and_measure

    def make(*arguments: object) -> object:
        made = original(*arguments)  # type: ignore[arg-type]
        network("a.onnx", 0.25)
        return made

    monkeypatch.setattr(runner, "convert_and_measure", make)
    code, found = statuses(capsys)
    assert code == 2
    assert "changed during the conversion" in found["a"]
    assert entries(".tpum") == [] and not Path("a.tpum").exists()


SECRET = b"a secret of this machine"


@pytest.mark.parametrize(
    ("location", "complaint"),
    [
        ("../secret.bin", "outside the model's folder"),
        ("{root}/secret.bin", "at the absolute path"),
        ("/proc/self/environ", "at the absolute path"),
        ("link.bin", "outside the model's folder"),
        ("fifo.bin", "which does not exist"),
    ],
)
def test_external_data_are_read_only_where_a_conversion_may(
    location: str, complaint: str, own_folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("secret.bin").write_bytes(SECRET)
    Path("models").mkdir()
    network("models/a.onnx", external="weights.bin")
    model = onnx.load("models/a.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location.format(root=own_folder)
    Path("models/a.onnx").write_bytes(model.SerializeToString())
    Path("models/link.bin").symlink_to("../secret.bin")
    os.mkfifo("models/fifo.bin")
    network("whole.onnx")
    hashed: list[Path] = []
    original = cache.content
    monkeypatch.setattr(cache, "content", lambda path: (hashed.append(path), original(path))[1])
    manifest({"a": {"source": "models/a.onnx"}, "whole": {"source": "whole.onnx"}})
    code, found = statuses(capsys)
    assert code == 4
    assert complaint in found["a"]
    assert found["whole"] == "made"
    read = {os.path.realpath(path) for path in hashed if CACHE not in path.parents}
    assert read <= {os.path.realpath("models/a.onnx"), os.path.realpath("whole.onnx")}


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_source_that_has_no_end_is_refused(kind: str, capsys: Captured) -> None:
    if kind == "fifo":
        os.mkfifo("a.onnx")
    network("whole.onnx")
    manifest({"a": {"source": "a.onnx" if kind == "fifo" else "/dev/zero"}, "whole": {"source": "whole.onnx"}})
    code, found = statuses(capsys)
    assert code == 2
    assert "pipe or a device" in found["a"]
    assert found["whole"] == "made"


def test_changed_external_data_of_a_model_without_suffix_are_noticed(capsys: Captured) -> None:
    network("a.model", external="weights.bin")
    manifest({"a": {"source": "a.model"}})
    assert statuses(capsys) == (0, {"a": "made"})
    assert statuses(capsys) == (0, {"a": "cached"})
    Path("weights.bin").unlink()
    network("a.model", 0.25, external="weights.bin")
    assert statuses(capsys) == (0, {"a": "made"})


def test_changed_preprocessing_file_is_noticed_and_is_relative_to_the_manifest(capsys: Captured) -> None:
    Path("folder").mkdir()
    network("folder/a.onnx")
    Path("folder/rule.yaml").write_text("scale: 0.5\n")
    content = {"models": {"a": {"source": "a.onnx", "preprocess": "rule.yaml"}}}
    Path("folder/tpuconvert.yaml").write_text(yaml.safe_dump(content))
    assert statuses(capsys, "folder/tpuconvert.yaml") == (0, {"a": "made"})
    assert statuses(capsys, "folder/tpuconvert.yaml") == (0, {"a": "cached"})
    Path("folder/rule.yaml").write_text("scale: 0.25\n")
    assert statuses(capsys, "folder/tpuconvert.yaml") == (0, {"a": "made"})


def test_files_beside_images_do_not_make_models_again(digits: Path, capsys: Captured) -> None:
    """A manifest in the image folder: the cache, outputs and reports are not taken for samples."""
    from PIL import Image

    shutil.copy2(digits / "digits.onnx", "digits.onnx")
    for value in (3, 7):
        Image.fromarray(np.full((8, 8), value, np.uint8)).save(f"{value}.png")
    entry = {"source": "digits.onnx", "quantize": "int8", "calibration": ".", "output": "digits.tpum"}
    manifest({"digits": {**entry, "preprocess": "color=GRAY,scale=0.0625"}})
    assert statuses(capsys, "--markdown", "m.md") == (0, {"digits": "made"})
    assert statuses(capsys, "--markdown", "m.md") == (0, {"digits": "cached"})


def test_options_of_a_plugin_in_the_manifest(capsys: Captured) -> None:
    network("a.onnx")
    Path("acme_ci.py").write_text(
        "import tpuconvert as tc\n\n\n@tc.register_calibrator('acme_ci_range')\nclass Collector:\n"
        "    def __init__(self):\n        self.most = 0.0\n\n"
        "    def add(self, array):\n        self.most = max(self.most, float(abs(array).max()))\n\n"
        "    def result(self):\n        return tc.Range(-self.most, self.most, self.most)\n"
    )
    np.save("samples.npy", np.random.default_rng(0).normal(size=(4, 1, 4)).astype(np.float32))
    entry = {"source": "a.onnx", "quantize": "int8", "calibration": "samples.npy"}
    manifest({"a": {**entry, "calibration_method": "acme_ci_range"}}, plugins=["acme_ci.py"])
    assert statuses(capsys) == (0, {"a": "made"})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no flock")
def test_models_of_a_killed_run_are_removed(capsys: Captured) -> None:
    network("a.onnx")
    manifest({"a": {"source": "a.onnx"}})
    left = CACHE / ".new.0123456789abcdef.tmp"
    left.mkdir(parents=True)
    (left / "0.tpum").write_bytes(b"half of a model")
    assert statuses(capsys)[0] == 0
    assert not left.exists() and [path.suffix for path in CACHE.rglob("*") if path.is_file()].count(".tpum") == 1
