"""Write the tables of docs/inside/optimizer.md: ``python -m tools.pages.optimizer_page [--check]``.

The list of rules is derived from the registered rules and from the cases of their proofs. The other tables count the
nodes of the models of the data set, and of their ONNX files simplified by onnxsim and onnxslim if these are installed.
With ``--check`` nothing is written: the exit code is 1 if the list of rules is out of date. This needs no data.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.proofs.cases import CASES
from tests.support.proofs.left_out import LEFT_OUT
from tools.accuracy.datasets import data_root, entries, input_shapes, model_files
from tools.pages.generated_file import replace_section, section
from tpuconvert.conversion.options.options import Options
from tpuconvert.conversion.source import Source
from tpuconvert.conversion.source_loading import load_source
from tpuconvert.optimizer import optimize
from tpuconvert.optimizer.engine.registry import rule_named, rule_names
from tpuconvert.optimizer.pipeline import describe_passes
from tpuconvert.schema.graph.graph import Graph

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inside" / "optimizer.md"
TOOL = "tools.pages.optimizer_page"
COMMAND = f"python -m {TOOL}"


@dataclass(frozen=True)
class Counts:
    """Number of nodes of a model before and after optimizing, and number of remaining permutes."""

    before: int
    after: int
    permutes: int


@dataclass(frozen=True)
class Simplified:
    """Numbers of nodes: in the ONNX file, in the simplified file, as TPU operators, and after the optimizer."""

    onnx: int
    simplified: int
    operators: int
    ours: int
    tools: str


def rules_table() -> list[str]:
    """Return one row per pass and rule, in execution order."""
    rows = ["| # | pass | rule | what it does | proof |", "|---|---|---|---|---|"]
    for row in describe_passes():
        rule = f"`{row['rule']}`" if row["rule"] else ""
        rows.append(f"| {row['order']} | `{row['name']}` | {rule} | {_escape(row['about'])} | {_proof(row['rule'])} |")
    return rows


def _proof(rule: str) -> str:
    if not rule:
        return ""
    if rule not in CASES:
        return "no case"
    return "in part, and random graphs" if rule in LEFT_OUT else "yes"


def proofs_table() -> list[str]:
    """Return the number of proved rules and patterns, and what the proofs leave out."""
    rules = [rule_named(name) for name in rule_names()]
    proved = [rule for rule in rules if rule.name in CASES and rule.name not in LEFT_OUT]
    rows = [
        "| | rules | patterns |",
        "|---|---|---|",
        f"| proved for all real inputs | {len(proved)} | {sum(len(rule.patterns) for rule in proved)} |",
    ]
    for name, reason in LEFT_OUT.items():
        rows.append(f"| `{name}`: {reason}; random graphs cover it | 1 | {len(rule_named(name).patterns)} |")
    return rows


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def load(root: Path, name: str) -> Graph:
    """Load the graph of a model of the data set."""
    entry = entries(root)[name]
    source, weights = model_files(root, entry)
    return load_source(Source(source, weights), Options(input_shapes=input_shapes(entry)))


def count(graph: Graph) -> Counts:
    """Optimize a graph in place, and count its nodes."""
    before = len(graph)
    optimize(graph)
    return Counts(before, len(graph), sum(node.op.name == "permute" for node in graph.nodes))


def models_table() -> list[str]:
    """Return one row per model of the data set."""
    root = data_root()
    rows = ["| model | nodes read | after optimizing | permutes left |", "|---|---|---|---|"]
    for name in entries(root):
        counts = count(load(root, name))
        rows.append(f"| {name} | {counts.before} | {counts.after} | {counts.permutes} |")
    return rows


def simplify(root: Path, name: str) -> Simplified:
    """Simplify an ONNX model with onnxsim and onnxslim and count nodes. Skip a tool that fails on the model."""
    import onnx
    import onnxsim
    import onnxslim

    entry = entries(root)[name]
    path, _ = model_files(root, entry)
    shapes = {key: list(shape) for key, shape in input_shapes(entry).items()}
    model = onnx.load(str(path))
    original, tools = len(model.graph.node), "onnxsim, onnxslim"
    try:
        model, _ = onnxsim.simplify(model, overwrite_input_shapes=shapes)
    except RuntimeError:  # the tool rejects models whose subgraphs use values that are defined later in the file
        tools = "onnxslim"
    model = onnxslim.slim(model)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "simplified.onnx"
        onnx.save(model, str(file))
        operators = len(load_source(Source(file), Options(input_shapes=input_shapes(entry))))
    return Simplified(original, len(model.graph.node), operators, count(load(root, name)).after, tools)


def onnx_models(root: Path) -> list[str]:
    """Return the names of the ONNX models of the data set."""
    return [name for name, entry in entries(root).items() if entry["format"] == "onnx"]


def simplifiers_table() -> list[str]:
    """Return one row per ONNX model of the data set."""
    root = data_root()
    rows = [
        "| model | nodes in the file | simplified | simplified, as TPU operators | optimized by us | simplified by |",
        "|---|---|---|---|---|---|",
    ]
    for name in onnx_models(root):
        counts = simplify(root, name)
        rows.append(
            f"| {name} | {counts.onnx} | {counts.simplified} | {counts.operators} | {counts.ours} | {counts.tools} |"
        )
    return rows


TABLES: dict[str, Callable[[], list[str]]] = {
    "rules": rules_table,
    "proofs": proofs_table,
    "models": models_table,
    "simplifiers": simplifiers_table,
}


def row_of(table: str, name: str) -> list[str]:
    """Return the cells of a table row of the current page, without the first cell."""
    lines = section(PAGE, PAGE.read_text(encoding="utf-8"), table, TOOL).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return next(row[1:] for row in cells if row[0] == name)


def update_tables(text: str, names: list[str]) -> str:
    """Regenerate tables of the page."""
    for name in names:
        text = replace_section(PAGE, text, name, TOOL, TABLES[name]())
    return text


def main(arguments: list[str]) -> int:
    """Write the tables, or check the list of rules. Return 1 if it is out of date."""
    before = PAGE.read_text(encoding="utf-8")
    if arguments == ["--check"]:
        is_current = before == update_tables(before, ["rules", "proofs"])
        if not is_current:
            print(f"{PAGE.name} is out of date: run {COMMAND}", file=sys.stderr)
        return int(not is_current)
    has_simplifiers = all(importlib.util.find_spec(name) is not None for name in ("onnxsim", "onnxslim"))
    names = [*TABLES] if has_simplifiers else ["rules", "proofs", "models"]
    PAGE.write_text(update_tables(before, names), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
