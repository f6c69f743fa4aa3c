"""The page about the optimizer lists all rules."""

from tools.pages import optimizer_page
from tpuconvert.optimizer.pipeline import describe_passes


def test_a_new_rule_makes_the_page_stale(monkeypatch) -> None:
    text = optimizer_page.PAGE.read_text(encoding="utf-8")
    rows = describe_passes()
    monkeypatch.setattr("tools.pages.optimizer_page.describe_passes", lambda: [*rows, {**rows[-1], "rule": "another"}])
    assert "`another`" in optimizer_page.update_tables(text, ["rules"])
    assert optimizer_page.main(["--check"]) == 1
