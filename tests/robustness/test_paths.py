"""Paths that a model file or a manifest names lead no command out of the folder of the model.

An audit hook records every file that is opened, created, moved or removed while a command runs, and every folder that
is listed. docs/reference/security.md has the number of vectors.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper

import tpuconvert as tc
from tpuconvert.cli.entry import run
from tpuconvert.frontends.onnx.file.external_files import external_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="other systems have other links")

SECRET = np.arange(16, dtype=np.float32) + np.float32(12345.678)

FOLLOWING = ("open", "os.listdir", "os.scandir", "os.chmod", "os.chown", "os.truncate", "os.utime")
NOT_FOLLOWING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree")
"""Audit events of calls that follow a link, and of those that change a name."""

_recorders: list[Callable[[str, bool], None]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _recorders and event in FOLLOWING + NOT_FOLLOWING:
        flags = arguments[2] if event == "open" else 0
        is_followed = event in FOLLOWING and not (flags or 0) & os.O_NOFOLLOW
        for path in arguments[: 1 if event in FOLLOWING else 2]:
            if isinstance(path, str | bytes | os.PathLike):
                _recorders[-1](os.fsdecode(path), is_followed)


sys.addaudithook(_audit)


class Roots:
    """A folder with a model, and one outside of it, which no command may touch."""

    def __init__(self, folder: Path) -> None:
        self.model, self.outside = folder / "model", folder / "outside"
        self.touched: list[str] = []
        self.outside.mkdir()
        (self.outside / "folder").mkdir()
        for name in ("secret.bin", "folder/secret.bin"):
            (self.outside / name).write_bytes(SECRET.tobytes())
        self.before = self._state()
        self.model.mkdir()
        (self.model / "sub").mkdir()
        (self.model / "ok.bin").write_bytes(np.eye(4, dtype=np.float32).tobytes())
        self._links()

    def _links(self) -> None:
        model, outside = self.model, self.outside
        for name, target in {
            "link": outside / "secret.bin",
            "relative": Path("../outside/secret.bin"),
            "folder": outside / "folder",
            "up": Path(".."),
            "chain": Path("link"),
            "loop": Path("loop"),
            "first": Path("second"),
            "second": Path("first"),
            "null": Path("/dev/zero"),
            "memory": Path("/proc/self/mem"),
            "descriptors": Path("/proc/self/fd"),
            "root": Path("/"),
            "dangling": outside / "new.bin",
            "sub/link": outside / "secret.bin",
            "sub/up": outside,
        }.items():
            (model / name).symlink_to(target)
        os.mkfifo(model / "pipe")
        with socket.socket(socket.AF_UNIX) as bound:
            before = os.getcwd()
            os.chdir(model)  # the name of a socket must be short
            bound.bind("socket")
            os.chdir(before)

    def _state(self) -> dict[str, tuple[Any, ...]]:
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode, path.lstat().st_nlink)
            for path in [self.outside, *sorted(self.outside.rglob("*"))]
        }

    def record(self, path: str, is_followed: bool) -> None:
        """Note a path that leads outside."""
        folder, name = os.path.split(path)
        real = os.path.realpath(path) if is_followed else os.path.join(os.path.realpath(folder), name)
        if str(self.outside) in real or real.startswith(("/dev/zero", "/dev/random", f"/proc/{os.getpid()}/")):
            self.touched.append(path)

    def check(self) -> None:
        """Check that nothing outside was read, created or changed."""
        assert self.touched == []
        assert self._state() == self.before
        for path in self.model.parent.rglob("*"):
            is_file = path.is_file() and not path.is_symlink() and not path.is_relative_to(self.outside)
            assert not (is_file and SECRET[:4].tobytes() in path.read_bytes()), path


STEPS = [13, pytest.param(1, marks=pytest.mark.slow)]
"""A sample of the vectors in every run, and all of them."""


def locations(outside: Path) -> list[str]:
    """Locations of external data. None of them is a file in the folder of the model."""
    secret = f"{outside}/secret.bin"
    up = "../outside/secret.bin"
    return [
        # that climb
        up, f"./{up}", f"sub/../{up}", f"sub/../sub/../{up}", f".//{up}", f"./././{up}", "ok.bin/../" + up,
        "missing/../" + up, "../model/../outside/secret.bin", "../../" + "/".join(outside.parts[-2:]) + "/secret.bin",
        "../" * 40 + secret.lstrip("/"), "../outside/folder/../secret.bin", "../outside//secret.bin", "../outside/.",
        "..", "../", "../outside", ".", "", "sub", "sub/",
        # absolute
        secret, f"/{secret}", f"//{secret}", f"/.{secret}", f"/proc/self/root{secret}", f"/proc/self/cwd/{up}",
        f"file://{secret}", f"file:{secret}", "~/secret.bin", "~root/secret.bin", "$HOME/secret.bin", "${PWD}/" + up,
        "/etc/passwd", "/dev/stdin", "/dev/fd/0", "/dev/zero", "/dev/random", "/proc/self/environ", "/proc/self/mem",
        # of Windows
        "..\\outside\\secret.bin", ".\\..\\outside\\secret.bin", "sub\\..\\..\\outside\\secret.bin", "C:\\secret.bin",
        "C:secret.bin", "C:/secret.bin", "\\\\server\\share\\secret.bin", "\\\\?\\C:\\secret.bin", "//?/C:/secret.bin",
        "\\\\.\\PhysicalDrive0", "\\secret.bin", "CON", "NUL", "nul.bin", "AUX", "COM1", "LPT1.bin", "ok.bin:stream",
        "ok.bin::$DATA", "ok.bin.", "ok.bin ", "OKBIN~1", "..\\..\\Windows\\win.ini",
        # links, and paths that are not files
        "link", "relative", "folder/secret.bin", "folder/../secret.bin", "up/outside/secret.bin", "chain", "loop",
        "first", "null", "memory", "descriptors/0", f"root{secret}", "dangling", "sub/link", "sub/up/secret.bin",
        "pipe", "socket", "./link", "sub/../link", "up/model/link",
        # encodings
        "%2e%2e/outside/secret.bin", "..%2foutside%2fsecret.bin", "..%00/outside/secret.bin", "..;/outside/secret.bin",
        "....//outside/secret.bin", "..\u2215outside\u2215secret.bin", "\uff0e\uff0e/outside/secret.bin",
        "\u2025/outside/secret.bin", "..\u200b/outside/secret.bin", "..\n/outside/secret.bin", " " + up, up + " ",
        "\t" + up, up + "\0", "\0" + up, "ok.bin\0" + up, up + "\n", "\ufeff" + up, "*", "sec?et.bin", "`id`", "$(id)",
        "|id", "a" * 300, "../" + "a" * 5000, "./" * 2100 + up,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    return Roots(tmp_path_factory.mktemp("paths"))


@pytest.fixture(autouse=True)
def recorded(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    roots.touched.clear()
    monkeypatch.chdir(roots.model)
    monkeypatch.setenv("TPUCONVERT_PLUGINS", "none")
    _recorders.append(roots.record)
    yield
    _recorders.pop()
    roots.check()


def network(path: Path, location: str, names: tuple[str, str] = ("x", "y")) -> None:
    """Write a matrix product whose weights are external data."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in names)
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    graph = helper.make_graph([helper.make_node("MatMul", [names[0], "w"], [names[1]])], "g", [x], [y], [weights])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


SAMPLES = ["--calibration", "x.npz"]
READERS: dict[str, list[str]] = {
    "convert": ["net.onnx", "-o", "out.tpum"],
    "convert int8": ["net.onnx", "-o", "out.tpum", "--quantize", "int8", *SAMPLES],
    "check": ["net.onnx"],
    "inspect": ["net.onnx"],
    "calibrate": ["net.onnx", *SAMPLES, "-o", "r.json"],
    "quantize": ["net.onnx", "--ranges", "ranges.json", "-o", "out.tpum"],
    "verify": ["net.onnx", "good.tpum"],
    "attribute": ["net.onnx", "int8.tpum", "--nodes", "1", "--samples", "1"],
    "diff": ["net.onnx", "good.tpum"],
    "diff as read": ["net.onnx", "net.onnx", "--as-read"],
    "tune": ["net.onnx", *SAMPLES, "--data", "y.npz", "--metric", "cosine", "--max-drop", "0.5", "-o", "out.tpum"],
    "reduce": ["net.onnx", "--until", "error", "-o", "reduced.onnx", "--budget", "1s"],
    "reproduce": ["net.onnx", "good.tpum"],
    "doctor": ["net.onnx", "--data", "x.npz"],
    "ci": ["models.yaml", "--jobs", "1"],
}


@pytest.fixture(scope="module")
def inputs(roots: Roots) -> None:
    """Valid files beside the model."""
    rng = np.random.default_rng(0)
    for name in ("x", "y"):
        np.savez(roots.model / f"{name}.npz", x=rng.standard_normal((2, 1, 4)).astype(np.float32))
    network(roots.model / "good.onnx", "ok.bin")
    good = tc.convert(roots.model / "good.onnx")
    good.save(roots.model / "good.tpum")
    samples = roots.model / "x.npz"
    tc.convert(roots.model / "good.onnx", quantize="int8", calibration=samples).save(roots.model / "int8.tpum")
    tc.calibrate(roots.model / "good.onnx", calibration=samples).save(roots.model / "ranges.json")
    (roots.model / "models.yaml").write_text(yaml.safe_dump({"models": {"m": {"source": "net.onnx"}}}))


def test_the_files_are_valid(roots: Roots, inputs: None) -> None:
    """Otherwise every vector would be refused for another reason."""
    network(roots.model / "net.onnx", "ok.bin")
    for name, words in READERS.items():
        assert run([name.split()[0], *words]) in ((2,) if name == "reduce" else (0, 5)), name
        _remove_results(roots)


def _remove_results(roots: Roots) -> None:
    for name in ("out.tpum", "r.json", "reduced.onnx", "out.rules.yaml", "out.tuning.json"):
        (roots.model / name).unlink(missing_ok=True)
    shutil.rmtree(roots.model / ".tpuconvert-cache", ignore_errors=True)


def test_number_of_vectors() -> None:
    assert len(set(locations(Path("/a/outside")))) >= 105


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", READERS)
def test_external_data(name: str, step: int, roots: Roots, inputs: None, capsys: pytest.CaptureFixture[str]) -> None:
    for location in locations(roots.outside)[:: max(step, 8) if name == "reduce" else step]:  # reduce takes a second
        network(roots.model / "net.onnx", location)
        code = run([name.split()[0], *READERS[name]])
        shown = capsys.readouterr()
        assert code in (2, 4) or name == "reduce", (location, code, shown.err)
        assert "12345" not in shown.out + shown.err
        assert roots.touched == [], location
        _remove_results(roots)


@pytest.mark.parametrize("location", ["link", "folder/secret.bin", "up/outside/secret.bin", "../outside/secret.bin"])
def test_an_allowed_root_is_the_only_exception(location: str, roots: Roots, inputs: None) -> None:
    network(roots.model / "net.onnx", location)
    assert run(["convert", "net.onnx", "-o", "out.tpum", "--allow-root", "sub"]) == 4
    assert roots.touched == []
    assert run(["convert", "net.onnx", "-o", "out.tpum", "--allow-root", str(roots.outside)]) == 0
    assert roots.touched != []
    roots.touched.clear()
    _remove_results(roots)


def hostile_names(outside: Path) -> list[str]:
    """Names of inputs and outputs, which some commands turn into names of files."""
    found = [name for name in locations(outside) if name and "\0" not in name and len(name) < 3000]
    return [*found, *(f"{name}.npy" for name in found[:10]), "x.npz", "..npy", ".hidden", "-rf", "--help"]


WRITERS: dict[str, list[str]] = {
    "run folder": ["run", "named.tpum", "x.npz", "-o", "results"],
    "run": ["run", "named.tpum", "x.npz", "-o", "results.npz"],
    "tpu-mlir": ["export", "named.tpum", "exported"],
    "tpulang": ["export", "named.tpum", "exported", "--to", "tpulang"],
    "onnx": ["export", "named.tpum", "exported.onnx", "--to", "onnx"],
    "plan": ["device", "plan", "named.tpum", "planned"],
    "inspect": ["inspect", "named.tpum", "--html", "page.html"],
    "diff": ["diff", "named.tpum", "good.tpum", "--html", "page.html"],
    "dump": ["convert", "named.onnx", "-o", "out.tpum", "--dump-after", "canonicalize"],
}
RESULTS = ("results", "results.npz", "exported", "exported.onnx", "planned", "page.html", "out.tpum")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WRITERS)
def test_names_of_tensors(name: str, step: int, roots: Roots, inputs: None, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in roots.model.iterdir()}
    for hostile in hostile_names(roots.outside)[::step]:
        network(roots.model / "named.onnx", "ok.bin", (f"i{hostile}", hostile))
        tc.convert(roots.model / "named.onnx").save(roots.model / "named.tpum")
        np.savez(roots.model / "x.npz", x=np.ones((1, 4), np.float32))
        code = run(WRITERS[name])
        assert code in (0, 2, 3, 4, 5), (hostile, capsys.readouterr().err)
        after = {path.name for path in roots.model.iterdir()} - before
        assert after <= {*RESULTS, "named.onnx", "named.tpum"}, hostile
        assert roots.touched == [], hostile
        for result in RESULTS:
            path = roots.model / result
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.parametrize("target", ["folder", "dangling", "link"])
@pytest.mark.parametrize("name", ["tpu-mlir", "plan"])
def test_links_in_a_replaced_folder_are_not_followed(name: str, target: str, roots: Roots, inputs: None) -> None:
    """An export replaces a folder, in which another user may have made links."""
    shutil.copy(roots.model / "int8.tpum", roots.model / "named.tpum")
    words = WRITERS[name]
    assert run(words) == 0
    for path in list((roots.model / words[-1]).iterdir()):
        if path.name != "export.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.symlink_to(roots.model / target)
    run(words)
    shutil.rmtree(roots.model / words[-1])


def test_links_in_the_cache(roots: Roots, inputs: None) -> None:
    network(roots.model / "net.onnx", "ok.bin")
    assert run(["ci", "models.yaml", "--jobs", "1"]) == 0
    entries = [path for path in (roots.model / ".tpuconvert-cache").rglob("*") if path.is_file()]
    assert len(entries) == 2
    for entry in entries:
        entry.unlink()
        entry.symlink_to(roots.outside / "secret.bin")
    roots.touched.clear()
    assert run(["ci", "models.yaml", "--jobs", "1"]) == 0
    assert not any(entry.is_symlink() for entry in entries)
    _remove_results(roots)


MANIFEST_KEYS = ("source", "weights", "calibration", "data", "evaluation", "baseline", "allow_root", "preprocess")


@pytest.mark.parametrize("key", MANIFEST_KEYS)
def test_devices_in_a_manifest(key: str, roots: Roots, inputs: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A manifest is the user's and may name any file, but no device: reading one may never end."""
    for name in ("/dev/zero", "/dev/random", "/dev/stdin", "pipe", "socket", "null", "memory", "loop"):
        entry = {"source": "good.onnx", key: name, "quantize": "int8", "samples": 1}
        Path("hostile.yaml").write_text(yaml.safe_dump({"models": {"m": entry}}))
        code = run(["ci", "hostile.yaml", "--jobs", "1"])
        shown = capsys.readouterr()
        assert code != 1 and "internal" not in shown.err + shown.out, (name, shown.err)
        roots.touched.clear()  # opened, but not read
        _remove_results(roots)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_that_appear_while_a_model_is_read(kind: str, roots: Roots, inputs: None, tmp_path: Path) -> None:
    """Another program exchanges the file, or its folder, with a link. The secret must not get into a result."""
    model = tmp_path / "raced"
    shutil.rmtree(model, ignore_errors=True)
    (model / "data").mkdir(parents=True)
    weights = np.eye(4, dtype=np.float32).tobytes()
    network(model / "net.onnx", "data/w.bin")
    (model / "data" / "w.bin").write_bytes(weights)
    ended = threading.Event()
    thread = threading.Thread(target=_exchange, args=(model, kind, roots.outside / "folder", ended))
    thread.start()
    secret = SECRET.reshape(4, 4)
    try:
        for _ in range(200):
            try:
                read = tc.convert(model / "net.onnx").graph
            except tc.TpuConvertError:
                continue
            constants = [value.array for value in read.values if value.is_constant]
            assert not any(np.isin(secret, array).any() for array in constants)
    finally:
        ended.set()
        thread.join()
    roots.touched.clear()  # the hook resolves a path before it is opened


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_that_appear_after_the_check(
    kind: str, roots: Roots, inputs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "raced"
    (model / "data").mkdir(parents=True)
    network(model / "net.onnx", "data/secret.bin")
    (model / "data" / "secret.bin").write_bytes(np.eye(4, dtype=np.float32).tobytes())
    name = model / "data" / "secret.bin" if kind == "file" else model / "data"

    def replace(*arguments: Any, **options: Any) -> str:
        found = external_file(*arguments, **options)
        if not name.is_symlink():
            os.rename(name, model / "kept")
            name.symlink_to(roots.outside / "folder" / ("secret.bin" if kind == "file" else ""))
        return found

    monkeypatch.setattr("tpuconvert.frontends.onnx.file.tensor_reader.external_file", replace)
    with pytest.raises(tc.CorruptInputError, match="cannot be read"):
        tc.convert(model / "net.onnx")
    roots.touched.clear()


def _exchange(model: Path, kind: str, outside: Path, ended: threading.Event) -> None:
    name = model / "data" / "w.bin" if kind == "file" else model / "data"
    target = outside / "secret.bin" if kind == "file" else outside
    kept, link = model / "kept", model / "link"
    while not ended.is_set():
        link.symlink_to(target)
        os.rename(name, kept)
        os.rename(link, name)
        name.unlink()
        os.rename(kept, name)
