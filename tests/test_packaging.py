"""Contents of the installed package: package list, data files, metadata."""

import configparser
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PROGRAMS = "examples/digits"  # the scripts that generated the example's data; only the data are installed
PACKAGE = "examples/custom_op/"  # a separate package
SOURCES = "runtime/kernels/"  # of the native engine: in the source distribution, compiled in the wheel


def setup_cfg(repository: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(repository / "setup.cfg", encoding="utf-8")
    return config


def mapped_folders(repository: Path) -> dict[str, str]:
    """Import name -> folder, from the mapping in setup.cfg."""
    lines = setup_cfg(repository)["options"]["package_dir"].strip().splitlines()
    return {name.strip(): folder.strip() for name, folder in (line.split("=") for line in lines)}


def import_name(path: str, mapping: dict[str, str]) -> str:
    """Import name of the package to which a file belongs, or ""."""
    folder = path.rpartition("/")[0]
    for name, root in sorted(mapping.items(), key=lambda item: -len(item[1])):
        if folder == root or folder.startswith(f"{root}/"):
            return ".".join([name, *folder[len(root) :].strip("/").split("/")]).rstrip(".")
    return ""


@pytest.fixture(scope="module")
def files(repository: Path) -> list[str]:
    """Every file of the repository that is not ignored, with forward slashes; without the example's programs."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout: the list of files cannot be made")
    names = {name for name in listing.stdout.splitlines() if (repository / name).is_file()}
    programs = {name for name in names if name.startswith(PROGRAMS) and name.endswith(".py")}
    return sorted(name for name in names - programs if not name.startswith(PACKAGE))


def test_package_list_names_every_folder_with_modules(repository: Path, files: list[str]) -> None:
    mapping = mapped_folders(repository)
    found = {import_name(name, mapping) for name in files if name.endswith(".py")} - {""}
    listed = set(setup_cfg(repository)["options"]["packages"].split())
    assert sorted(found - listed) == [], "add these to [options] packages in setup.cfg"
    assert sorted(listed - found) == [], "remove these from [options] packages in setup.cfg: no modules there"


def test_every_package_has_an_init_file(repository: Path, files: list[str]) -> None:
    mapping = mapped_folders(repository)
    folders = {name.rpartition("/")[0] for name in files if name.endswith(".py") and import_name(name, mapping)}
    assert [folder for folder in sorted(folders) if f"{folder}/__init__.py" not in files] == []


@pytest.fixture(scope="module")
def distributions(repository: Path, files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source distribution, built offline from a copy of the repository."""
    copy = tmp_path_factory.mktemp("copy")
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repository / name, copy / name)
    target = tmp_path_factory.mktemp("distributions")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), "."],
        cwd=copy,
        capture_output=True,
        text=True,
        # Without the engine, whose build takes a minute: tests/runtime/native builds a wheel with it.
        env={**os.environ, "PYTHONPATH": "", "TPUCONVERT_NATIVE": "off"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return target


def test_wheel_has_every_file_of_the_packages(distributions: Path, repository: Path, files: list[str]) -> None:
    mapping = mapped_folders(repository)
    expected = {
        f"{package.replace('.', '/')}/{name.rpartition('/')[2]}"
        for name in files
        if (package := import_name(name, mapping)) and not name.startswith(SOURCES)
    }
    expected.add("tpuconvert/runtime/native_left_out.txt")  # TPUCONVERT_NATIVE=off; tpuconvert doctor reads it
    [wheel] = distributions.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert sorted(expected - names) == [], "missing from the wheel: see [options.package_data] in setup.cfg"
    assert sorted(names - expected) == [], "in the wheel, but not in the repository"


def test_wheel_puts_one_name_into_site_packages(distributions: Path) -> None:
    [wheel] = distributions.glob("*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tpuconvert"}


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("*.whl", 2_800_000),  # without the engine, which adds 1.9 MB: 2.0 MB are modules, 0.2 MB the example
        ("*.tar.gz", 5_500_000),  # also tests with their models, kernels, pages with pictures
    ],
)
def test_distributions_are_small(distributions: Path, pattern: str, limit: int) -> None:
    """The budget is the size of 2026-11-30 and a tenth. ``tools/release/release.py`` limits wheels with the engine."""
    [path] = distributions.glob(pattern)
    assert path.stat().st_size <= limit, "state in the commit what became larger, and why users need it"


@pytest.mark.parametrize(
    "wanted",
    [
        "tpuconvert/py.typed",
        "tpuconvert/schema/file/tpum.fbs",
        "tpuconvert/frontends/caffe/file/caffe.proto",
        "tpuconvert/frontends/caffe/file/caffe_descriptor",
        "tpuconvert/examples/digits/digits.onnx",
        "tpuconvert/examples/digits/digits.npz",
    ],
)
def test_wheel_has_data_file(distributions: Path, wanted: str) -> None:
    [wheel] = distributions.glob("*.whl")
    assert any(name.startswith(wanted) for name in zipfile.ZipFile(wheel).namelist()), wanted


@pytest.mark.slow
def test_wheel_runs_the_demo(distributions: Path, tmp_path: Path) -> None:
    """The example is found in an installed package, here an unpacked wheel."""
    [wheel] = distributions.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import tpuconvert, tpuconvert.__main__; print(tpuconvert.__file__); tpuconvert.__main__.main(['demo'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert str(tmp_path / "site" / "tpuconvert" / "__init__.py") in done.stdout
    assert (tmp_path / "tpuconvert-demo" / "report.html").is_file(), done.stdout + done.stderr


def test_licence_is_in_the_wheel(distributions: Path) -> None:
    [wheel] = distributions.glob("*.whl")
    [name] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/LICENSE")]
    text = zipfile.ZipFile(wheel).read(name).decode()
    assert "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text


def test_source_distribution_has_what_a_wheel_and_the_tests_need(
    distributions: Path, repository: Path, files: list[str]
) -> None:
    [archive] = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    mapping = mapped_folders(repository)
    expected = {name for name in files if import_name(name, mapping) or name.startswith(("tests/", "tools/", "docs/"))}
    assert sorted(expected - names) == [], "missing from the source distribution: see MANIFEST.in"
