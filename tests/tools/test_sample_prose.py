"""Samples of docstrings, comments and sentences for reviews of the prose."""

from pathlib import Path

import pytest
import sample_prose
from sample_prose import Text

PYTHON = '''\
"""A module."""

LIMIT = 3
"""A bound."""
value = "# no comment"  # after code
# A comment
# of two lines.
# type: ignore

# 1 2


def add(x: int) -> int:
    """Add one.

    More.
    """
    return x + 1  # noqa: X1
'''
CPP = """\
namespace tpuconvert {
// A comment
// of two lines.
int bytes;  // of the first
int rows;   // of the second
}  // namespace tpuconvert
"""
PAGE = """\
# A heading

One sentence here. A second one
on two lines.

```bash
tpuconvert convert net.onnx
```

| a table | row |
|---|---|

- An item of a list.
- No. Another item of it.
"""


@pytest.mark.slow
def test_draws_the_same_samples_for_the_same_seed(repository: Path) -> None:
    samples = sample_prose.draw_samples(3)
    assert {kind: len(texts) for kind, texts in samples.items()} == {
        "docstrings": 60,
        "comments": 60,
        "documentation": 40,
    }
    assert samples == sample_prose.draw_samples(3)
    assert samples != sample_prose.draw_samples(4)
    for texts in samples.values():
        assert len(set(texts)) == len(texts)
        for text in texts:
            line = (repository / text.file).read_text(encoding="utf-8").splitlines()[text.line - 1]
            first = text.text.split()[0]
            assert first in line or line.strip().endswith(('"""', '"""\\')), text


def test_finds_docstrings() -> None:
    found = list(sample_prose.docstrings("a.py", PYTHON))
    assert found == [
        Text("a.py", 1, "A module."),
        Text("a.py", 4, "A bound."),
        Text("a.py", 14, "Add one.\n\n    More."),
    ]


def test_finds_comments() -> None:
    assert list(sample_prose.python_comments("a.py", PYTHON)) == [
        Text("a.py", 5, "after code"),
        Text("a.py", 6, "A comment of two lines."),
    ]
    assert list(sample_prose.cpp_comments("a.h", CPP)) == [
        Text("a.h", 2, "A comment of two lines."),
        Text("a.h", 4, "of the first"),
        Text("a.h", 5, "of the second"),
    ]


def test_finds_sentences() -> None:
    assert list(sample_prose.sentences("a.md", PAGE)) == [
        Text("a.md", 3, "One sentence here."),
        Text("a.md", 3, "A second one on two lines."),
        Text("a.md", 13, "An item of a list."),
        Text("a.md", 14, "Another item of it."),
    ]
