"""Imports: in one direction between folders, and deferred for slow libraries.

Ruff refuses relative imports, and ``test_rooms.py`` finds circles.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.syntax_trees import statements, syntax_tree

# Folder -> the parts of tpuconvert its modules may import ("": the package itself and everything in it).
MAY_IMPORT = {
    "schema": {"schema"},
    "runtime": {"runtime", "schema"},
    "frontends": {"frontends", "schema"},
    "optimizer": {"optimizer", "schema", "runtime"},
    "converter": {""},
    "examples": {""},
}
HEAVY = ("onnx", "tflite", "google.protobuf", "numpy", "flatbuffers", "PIL", "yaml")


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import of a module, wherever in it they stand."""
    has_calls = "import_module" in path.read_text(encoding="utf-8")
    for node in ast.walk(syntax_tree(path)) if has_calls else statements(syntax_tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{node.module or ''}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr) == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_run_in_one_direction(repository: Path, folder: str) -> None:
    allowed = MAY_IMPORT[folder]
    wrong = []
    for path in modules(repository / folder):
        for line, name in imports(path):
            parts = name.split(".")
            part = parts[1] if len(parts) > 1 else ""
            if parts[0] == "tpuconvert" and "" not in allowed and part not in allowed:
                wrong.append(f"{path.relative_to(repository)}:{line} imports {name}")
    assert wrong == [], f"{folder}/ may import only {sorted(allowed)}"


def test_every_mapped_folder_has_a_direction(repository: Path) -> None:
    folders = {path.parent.name for path in repository.glob("*/__init__.py")}
    assert folders - {"tests", "tools"} <= set(MAY_IMPORT)


MEASURED_IMPORTS = 25
"""Largest number of function-level imports of this package."""


def module_files(repository: Path) -> dict[str, Path]:
    """Import name -> file of every module of the package."""
    found = {}
    for folder in MAY_IMPORT:
        prefix = "tpuconvert" if folder == "converter" else f"tpuconvert.{folder}"
        for path in modules(repository / folder):
            parts = path.relative_to(repository / folder).with_suffix("").parts
            found[".".join([prefix, *parts]).removesuffix(".__init__")] = path
    return found


def imported_at_run_time(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement outside of ``if TYPE_CHECKING``, and whether it is in a function."""
    checked = [node for node in statements(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    for_types = {id(node) for block in checked for statement in block.body for node in ast.walk(statement)}
    functions = (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inner = {id(node) for function in functions for node in statements(function)}
    for node in statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in for_types:
            yield node, id(node) in inner


def targets(node: ast.Import | ast.ImportFrom, known: Collection[str]) -> set[str]:
    """The modules of this package that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & set(known)
    return {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)} & set(known)


def test_function_level_imports_are_few_and_give_their_reason(repository: Path) -> None:
    files = module_files(repository)
    found, without_reason = 0, []
    for path in files.values():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if not re.search(r"^ +(?:from|import) ", text, re.MULTILINE):
            continue
        nodes = [
            node for node, is_inner in imported_at_run_time(syntax_tree(path)) if is_inner and targets(node, files)
        ]
        found += len(nodes)
        for node in nodes:
            block = "\n".join(lines[max(0, node.lineno - 14) : node.end_lineno])
            if not re.search(r"#.*\bms\b", block):
                without_reason.append(f"{path.relative_to(repository)}:{node.lineno}")
    assert without_reason == [], "a comment gives the milliseconds that a function-level import saves"
    assert found <= MEASURED_IMPORTS


def loaded_by(*code: str) -> set[str]:
    """Modules of HEAVY in sys.modules after running the code in a new process."""
    listing = f"import sys; print('|'.join(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", "\n".join([*code, listing])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.strip().split("|")) - {""}


def test_import_is_light() -> None:
    assert loaded_by("import tpuconvert") == set()


@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_help_is_light(arguments: str) -> None:
    code = f"""
from tpuconvert.__main__ import main
try:
    main({arguments.split()!r})
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    assert loaded_by(code) == set()


class Budget(NamedTuple):
    """Limits of what a program imports."""

    code: str
    modules: int
    packages: set[str]


# Every command of a shell pays for its imports: a module takes about 0.8 ms, numpy and xxhash 0.1 s (CPU time). The
# numbers of modules were counted on 2026-11-30, and a few were added; a larger one needs a reason.
BUDGETS = {
    "the package": Budget("import tpuconvert", 1, set()),
    "a session": Budget("import tpuconvert; tpuconvert.Session", 95, {"numpy", "xxhash"}),
    "a conversion": Budget("import tpuconvert; tpuconvert.convert", 350, {"numpy", "xxhash"}),
    "the list of commands": Budget("from tpuconvert.__main__ import main; main(['--version'])", 30, {"click"}),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_imports_stay_within_their_budget(name: str) -> None:
    """Counted, not timed: a time depends on the machine."""
    code, limit, packages = BUDGETS[name]
    listing = "import atexit, sys; atexit.register(lambda: print('|'.join(sys.modules), file=sys.stderr))"
    done = subprocess.run([sys.executable, "-c", f"{listing}\n{code}"], capture_output=True, text=True, check=True)
    loaded = done.stderr.strip().split("|")
    own = [module for module in loaded if module.split(".")[0] == "tpuconvert"]
    # The environment imports modules of its own when Python starts, such as the finder of an editable installation.
    idle = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    others = {module.split(".")[0] for module in set(loaded) - set(idle.stderr.strip().split("|"))}
    assert len(own) <= limit
    assert others - set(sys.stdlib_module_names) - {"tpuconvert"} <= packages


def test_runtime_needs_no_frontend() -> None:
    listing = "import sys; print([name for name in sys.modules if name.startswith('tpuconvert.frontends')])"
    done = subprocess.run(
        [sys.executable, "-c", f"import tpuconvert.runtime.session.session\n{listing}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
