"""Paths of external data: they stay in the model's folder, or in a directory that the caller allows."""

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.onnx.models import model, one, ramp
from tpuconvert.__main__ import main
from tpuconvert.conversion.reproduction import reproduce
from tpuconvert.frontends.onnx.file.external_files import external_file, open_external
from tpuconvert.schema.errors import CorruptInputError


def snapshot(folder: Path) -> Path:
    """A model in the layout of Hugging Face's cache: a snapshot of links, and the files in ``blobs``."""
    proto = model([one("MatMul", "x", "w")], {"x": ramp(1, 64)}, ["y"], {"w": ramp(64, 64, seed=1)})
    blobs, revision = folder / "models--net" / "blobs", folder / "models--net" / "snapshots" / "1f3c"
    blobs.mkdir(parents=True)
    revision.mkdir(parents=True)
    onnx.save(proto, blobs / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    for name, digest in (("model.onnx", "3b1f"), ("model.onnx_data", "9c0e")):
        shutil.move(blobs / name, blobs / digest)
        os.symlink(f"../../blobs/{digest}", revision / name)
    return revision / "model.onnx"


def test_links_out_of_the_folder_are_refused_with_the_option_that_allows_them(tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    blobs = os.path.realpath(tmp_path / "models--net" / "blobs")
    with pytest.raises(CorruptInputError, match=r"'model.onnx_data', outside the model's folder: it is a link") as told:
        tc.convert(path)
    assert told.value.hint.endswith(f"--allow-root {blobs}")


def test_an_allowed_directory_holds_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = snapshot(tmp_path)
    with tc.Session(tc.convert(path, source_options=tc.SourceOptions(allow_root=tmp_path / "models--net"))) as session:
        found = session.run({"x": ramp(1, 64)})["y"]
    np.testing.assert_allclose(found, ramp(1, 64) @ ramp(64, 64, seed=1), rtol=1e-4, atol=1e-4)  # sums of 64 in float32
    monkeypatch.chdir(tmp_path)
    words = ["--allow-root", "models--net/blobs"]
    assert main(["convert", str(path), "-o", "net.tpum", "--verify", *words]) == 0
    assert main(["verify", str(path), "net.tpum", "--oracle", "onnxruntime", *words]) == 0
    assert main(["verify", str(path), "net.tpum"]) == 4


def test_another_directory_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(CorruptInputError, match="outside the model's folder and outside"):
        tc.convert(snapshot(tmp_path), source_options=tc.SourceOptions(allow_root=tmp_path / "other"))


def test_a_link_in_the_allowed_directory_leads_no_further(tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    blobs = tmp_path / "models--net" / "blobs"
    shutil.move(blobs / "9c0e", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", blobs / "9c0e")
    with pytest.raises(CorruptInputError, match="outside"):
        tc.convert(path, source_options=tc.SourceOptions(allow_root=blobs))


def test_the_recipe_holds_no_place_and_reproduce_takes_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = snapshot(tmp_path)
    made = tc.convert(path, source_options=tc.SourceOptions(allow_root=tmp_path))
    assert "allow_root" not in str(made.metadata)
    made.save(tmp_path / "net.tpum")
    with pytest.raises(CorruptInputError, match="outside the model's folder"):
        reproduce(tmp_path / "net.tpum", path)
    assert reproduce(tmp_path / "net.tpum", path, allow_root=tmp_path).is_same
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", str(path), "net.tpum", "--allow-root", str(tmp_path)]) == 0


@pytest.mark.parametrize("location", ["/etc/hostname", "\\\\server\\share", "C:/weights.bin", "c:weights.bin"])
def test_absolute_paths_are_refused_even_where_their_directory_is_allowed(tmp_path: Path, location: str) -> None:
    with pytest.raises(CorruptInputError, match="absolute path"):
        external_file(tmp_path / "net.onnx", location, "/")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "sub/../../secret.bin", "..\\secret.bin", "../../proc/self/environ"]
)
def test_paths_that_climb_need_trust(tmp_path: Path, location: str) -> None:
    with pytest.raises(CorruptInputError, match="outside the model's folder") as told:
        external_file(tmp_path / "net.onnx", location)
    assert told.value.hint.startswith("only if you trust the model")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(tc.UsageError, match=r"allow_root: .*nowhere is not a directory"):
        tc.convert(tmp_path / "net.onnx", source_options=tc.SourceOptions(allow_root=tmp_path / "nowhere"))


def test_only_onnx_models_have_external_data(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('name: "net"\ninput: "x"\n')
    with pytest.raises(tc.UsageError, match="--allow-root belongs to ONNX models only"):
        tc.convert(tmp_path / "net.prototxt", source_options=tc.SourceOptions(allow_root=tmp_path))


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot open relative to a folder")
@pytest.mark.parametrize("replaced", ["parts", "parts/weights.bin"])
def test_a_link_that_appears_after_the_check_is_not_followed(tmp_path: Path, replaced: str) -> None:
    path, outside = tmp_path / "model" / "net.onnx", tmp_path / "outside"
    weights = path.parent / "parts" / "weights.bin"
    for folder in (weights.parent, outside):
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(b"secret" if folder == outside else b"own")
    resolved = external_file(path, "parts/weights.bin")
    with open_external(resolved, path) as file:
        assert file.read() == b"own"
    old = path.parent / replaced
    old.rename(tmp_path / "moved")
    old.symlink_to(outside if old.suffix == "" else outside / "weights.bin")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        open_external(resolved, path)
