"""The rule for commit subjects, and the selection of commits that the program checks."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tools.release import commit_subjects


@pytest.mark.parametrize(
    "subject",
    [
        "Fold batch norm into deconv",
        "Split options and source loading; tidy docstrings",
        "Set a default for --threads",
        "C" + "x" * 71,
        'Revert "' + "x" * 80 + '"',
        "Merge branch 'main' into docs",
        "fixup! The",
    ],
)
def test_accepts_capitalized_subjects(subject: str) -> None:
    assert commit_subjects.subject_problem(subject) is None


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("C" + "x" * 72, "73 characters, expected at most 72"),
        ("16-bit convolutions", "does not begin with a capitalized word"),
        ("wip: fold batch norm", "does not begin with a capitalized word"),
        ("", "does not begin with a capitalized word"),
        ("Fold batch norm.", "ends in a period"),
    ],
)
def test_rejects_other_subjects(subject: str, reason: str) -> None:
    assert reason in str(commit_subjects.subject_problem(subject))


def test_hook_checks_first_paragraph_of_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("\n# a comment\nFold batch norm\ninto deconv\n\nAdded: details.\n# On branch docs\n")
    assert commit_subjects.message_subject(message.read_text()) == "Fold batch norm into deconv"
    assert commit_subjects.main([str(message)]) == 0
    message.write_text("add a hook\n")
    assert commit_subjects.main([str(message)]) == 1
    assert "this commit: 'add a hook': does not begin with a capitalized word" in capsys.readouterr().err


class History:
    """A scratch repository that the program checks instead of this one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "core.hooksPath=/dev/null"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Create a history with one commit that is older than the rule."""
    created = History(tmp_path / "repository")
    monkeypatch.setattr(commit_subjects, "ROOT", created.root)
    monkeypatch.setattr(commit_subjects, "START", created.commit("words from before the rule"))
    return created


def test_checks_commits_after_the_start(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    history.commit("Add a file")
    assert commit_subjects.main([]) == 0
    wrong = history.commit("add a second file")
    history.commit("Add a third file")
    assert commit_subjects.main([]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert error.startswith(wrong[:7])


def test_checks_only_commits_that_main_lacks(history: History) -> None:
    history.git("update-ref", "refs/remotes/origin/main", history.commit("accepted long ago"))
    history.commit("Add a file")
    assert commit_subjects.main([]) == 0
    history.commit("add a file.")
    assert commit_subjects.main([]) == 1


def test_checks_everything_after_the_start_in_a_fresh_clone_of_main(history: History) -> None:
    history.git("update-ref", "refs/remotes/origin/main", history.commit("add a file."))
    assert commit_subjects.main([]) == 1


def test_checks_the_commits_that_a_shallow_clone_has(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_subjects, "START", "0" * 40)
    monkeypatch.setattr(commit_subjects, "FALLBACK", 1)
    history.commit("Add a file")
    assert commit_subjects.main([]) == 0
    history.commit("add a file.")
    assert commit_subjects.main([]) == 1


def test_accepts_folder_without_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commit_subjects, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_subjects.main([]) == 0
    assert "no git history" in capsys.readouterr().err


def test_hook_and_ci_run_the_program(repository: Path) -> None:
    configuration = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    [hook] = [hook for entry in configuration["repos"] for hook in entry["hooks"] if hook["id"] == "commit-subject"]
    assert hook["stages"] == ["commit-msg"]
    assert "commit-msg" in configuration["default_install_hook_types"]
    assert hook["entry"].endswith("-m tools.release.commit_subjects")
    assert "-m tools.release.commit_subjects" in (repository / ".ci" / "run").read_text(encoding="utf-8")
