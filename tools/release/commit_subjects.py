"""Check length and form of commit subjects: ``python -m tools.release.commit_subjects [MESSAGE_FILE]``.

With a file, check the message in it; this is how the commit-msg hook of ``.pre-commit-config.yaml`` calls the program.
Without one, check every commit that is new: those that ``origin/main`` does not contain, or, on ``main`` itself, those
after ``START``. Earlier commits were written before the rule. The exit code is 1 if a subject breaks the rule.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 72
"""Largest length of a subject in characters, so that `git log --oneline` fits into 80 columns."""
START = "5774072d00189ba3cbe5afa01c6e372ee4cd3e85"
"""The last commit before the rule was introduced."""
FALLBACK = 50
"""Number of commits to check where ``START`` is missing, as in a shallow clone."""
GENERATED = ("Merge ", 'Revert "', "fixup! ", "squash! ", "amend! ")
"""Beginnings of the subjects that git writes."""


def subject_problem(subject: str) -> str | None:
    """Return the reason why a commit subject breaks the rule, or None."""
    if subject.startswith(GENERATED):
        return None
    if len(subject) > LONGEST:
        return f"{len(subject)} characters, expected at most {LONGEST}; move the details to the body"
    if re.match(r"[A-Z]\w+\b", subject) is None:
        return "does not begin with a capitalized word, expected an imperative verb such as 'Add'"
    return "ends in a period, expected none" if subject.endswith(".") else None


def git(*arguments: str) -> str:
    """Return the output of a git command in the checkout; an empty string if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def new_subjects() -> dict[str, str]:
    """Return the subjects of the new commits by abbreviated hash."""
    base = git("merge-base", "HEAD", "origin/main")
    old_commits = [base] if base and base != git("rev-parse", "HEAD") else []
    if git("cat-file", "-t", START) == "commit":
        old_commits.append(START)
    limit = [] if old_commits else [f"--max-count={FALLBACK}"]
    log = git("log", "--no-merges", "--format=%h %s", *limit, "HEAD", *(f"^{commit}" for commit in old_commits))
    return {commit: subject for commit, _, subject in (line.partition(" ") for line in log.splitlines())}


def message_subject(message: str) -> str:
    """Return the first paragraph as one line, without the comments of the editor."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    return " ".join("\n".join(lines).strip().split("\n\n")[0].split())


def main(arguments: list[str]) -> int:
    """Check one message or the new commits; return the exit code."""
    if arguments:
        subjects = {"this commit": message_subject(Path(arguments[0]).read_text(encoding="utf-8"))}
    elif git("rev-parse", "HEAD"):
        subjects = new_subjects()
    else:
        print("commit subjects are not checked: this folder has no git history", file=sys.stderr)
        return 0
    problems = {commit: problem for commit, subject in subjects.items() if (problem := subject_problem(subject))}
    for commit, problem in problems.items():
        print(f"{commit}: {subjects[commit]!r}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
