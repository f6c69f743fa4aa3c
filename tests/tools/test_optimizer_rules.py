"""The table of the optimizer's rules is what their modules register."""

import subprocess
import sys
from pathlib import Path

import optimizer_rules


def test_is_what_the_modules_register() -> None:
    tool = Path(optimizer_rules.__file__)
    told = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_a_rule_that_moves_makes_the_table_stale(monkeypatch) -> None:
    rows = optimizer_rules.found()
    moved = {name: (stage, "rules.elsewhere", sketches) for name, (stage, _, sketches) in rows.items()}
    monkeypatch.setattr(optimizer_rules, "found", lambda: moved)
    monkeypatch.setattr(sys, "argv", ["optimizer_rules.py", "--check"])
    assert optimizer_rules.main() == 1
