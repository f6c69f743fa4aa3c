"""Hints for misspelled names have one home and one wording."""

from __future__ import annotations

import re
from pathlib import Path

from tpuconvert.schema.text.spelling import did_you_mean, meant, nearest

ELSEWHERE = {"frontends/onnx/error_hints.py": "the domain of an operator, not its name"}
"""Modules with another suggestion -> what it suggests."""


def test_similar_names() -> None:
    assert did_you_mean("conv_2d", ["Conv2D", "Conv3D"]) == "did you mean 'Conv2D'?"
    assert did_you_mean("kept", ["zero", "one"]) == ""
    assert meant(nearest("pool", ["pools", "pol", "pad"], limit=2)) == "did you mean 'pools' or 'pol'?"


def test_no_other_module_words_a_suggestion(repository: Path) -> None:
    homes = {
        str(path.relative_to(repository))
        for folder in ("converter", "frontends", "optimizer", "runtime", "schema")
        for path in (repository / folder).rglob("*.py")
        if re.search(r"[\"']did you mean |Did you mean |get_close_matches", path.read_text(encoding="utf-8"))
    }
    assert homes == {"schema/text/spelling.py", *ELSEWHERE}
