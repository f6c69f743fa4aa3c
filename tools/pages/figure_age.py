"""List measured figures and the commits since that changed the code on which they depend.

    python -m tools.pages.figure_age [--check]

``figures.yaml`` has the figures. With ``--check``, the exit code is 1 if a figure is older than its code.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("figures.yaml")


@dataclass(frozen=True)
class Figure:
    """A group of figures of one measurement.

    Attributes:
        figure: what was measured.
        page: page with the figures, relative to the repository.
        text: part of the page that states the measurement.
        commit: commit that was measured.
        paths: files and folders on which the figures depend.
    """

    figure: str
    page: str
    text: str
    commit: str
    paths: list[str]


def figures() -> list[Figure]:
    """Return the figures of the list."""
    return [Figure(**entry) for entry in yaml.safe_load(LIST.read_text(encoding="utf-8"))]


def git(*arguments: str) -> str:
    """Return the output of a command of git in the repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commits_since(figure: Figure) -> list[str]:
    """Return the subjects of the commits after the measurement that changed the code, the newest first."""
    return git("log", "--no-merges", "--format=%h %s", f"{figure.commit}..HEAD", "--", *figure.paths).splitlines()


def main(arguments: list[str]) -> int:
    """Print a line per figure. Return 1 with ``--check`` if one is older than its code."""
    is_stale = False
    for figure in figures():
        commits = commits_since(figure)
        is_stale |= bool(commits)
        newest = f"; newest: {commits[0]}" if commits else ""
        print(f"{figure.page}: {figure.figure}: {len(commits)} commits since {figure.commit}{newest}")
    return int(is_stale and arguments == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
