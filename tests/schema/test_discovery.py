"""Discovery imports every module of a package, in a folder and in a zip file."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuconvert.schema.discovery import import_modules

FILES = {
    "__init__.py": "names = []\n",
    "first.py": "import sys\nsys.modules[__package__].names.append(__name__)\n",
    "second.py": "import sys\nsys.modules[__package__].names.append(__name__)\n",
    "below/__init__.py": "import sys\nsys.modules[__package__.rpartition('.')[0]].names.append(__name__)\n",
    "_private.py": "raise AssertionError('a module whose name begins with an underscore was imported')\n",
}


@pytest.fixture
def package(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"discovered_{request.node.callspec.params['stored']}"
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


@pytest.mark.parametrize("stored", ["folder", "zip"])
def test_imports_public_modules_in_order_of_their_names(
    package: str, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in FILES.items():
            file.writestr(f"{package}/{name}", text)
    if stored == "folder":
        zipfile.ZipFile(archive).extractall(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path if stored == "folder" else archive))
    expected = [f"{package}.{name}" for name in ("below", "first", "second")]
    assert list(import_modules(package)) == expected
    assert sys.modules[package].names == expected
    assert list(import_modules(package)) == expected
    assert sys.modules[package].names == expected  # a second call imports nothing again


def test_does_not_hide_the_exception_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package" / "__init__.py").touch()
    (tmp_path / "broken_package" / "wrong.py").write_text("raise RuntimeError('cannot be imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="cannot be imported"):
        import_modules("broken_package")
    del sys.modules["broken_package"]
