"""Open one issue about the failures of a night, or add a comment to it: ``python -m tools.nightly.issue FOLDER``.

FOLDER has the results and logs of the pieces. A piece without a result is a failure too: its job ended early. The text
has the seed, the table, and for each failure the command that repeats it, its findings and the end of its log. Nothing
is done if every piece succeeded. ``gh``, the command line of GitHub, needs ``GH_TOKEN``; a workflow sets the other
variables. ``--print`` prints the text instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.nightly.results import PIECES, Result, read_results, table

TITLE = "The nightly run fails"
MOST_LOG = 4_000
"""Characters of a log: GitHub refuses a text above 65,536."""


def body(folder: Path, variables: Mapping[str, str]) -> str:
    """Return the text about the failures in a folder, or "" if every piece succeeded."""
    results = read_results(folder)
    absent = [piece for piece in PIECES if piece not in {result.piece for result in results}]
    failed = [result for result in results if result.exit_code]
    if not failed and not absent:
        return ""
    run = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format_map(variables)
    seeds = ", ".join(sorted({str(result.seed) for result in results})) or "unknown"
    parts = [f"Run {run} of {variables['GITHUB_SHA']}, seed {seeds}.", table(results)]
    parts += [f"`{piece}` has no result: its job ended early, see the run." for piece in absent]
    return "\n\n".join([*parts, *(part for result in failed for part in _details(result, folder))]) + "\n"


def _details(result: Result, folder: Path) -> Iterator[str]:
    """Yield the paragraphs about a failure."""
    log = folder / f"{result.piece}.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "no log\n"
    yield f"## {result.piece}"
    yield f"    {result.command}"
    yield "\n".join(f"- `{finding.replace('`', chr(39))}`" for finding in result.findings)
    yield f"<details><summary>end of the log</summary>\n\n~~~~\n{text[-MOST_LOG:]}\n~~~~\n\n</details>"


def publish(text: str, repository: str) -> None:
    """Add the text to the open issue with the title, or open one."""
    scope = ["--repo", repository]
    listed = _gh(
        ["issue", "list", *scope, "--state", "open", "--search", f'in:title "{TITLE}"', "--json", "number,title"]
    )
    numbers = [str(issue["number"]) for issue in json.loads(listed) if issue["title"] == TITLE]
    target = ["comment", min(numbers, key=int)] if numbers else ["create", "--title", TITLE]
    print(_gh(["issue", *target, *scope, "--body-file", "-"], text).strip())


def _gh(arguments: Sequence[str], text: str = "") -> str:
    return subprocess.run(["gh", *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Publish or print the text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="results and logs")
    parser.add_argument("--print", action="store_true", dest="is_printed", help="print the text, publish nothing")
    options = parser.parse_args(arguments)
    text = body(options.folder, os.environ)
    if not text:
        print("every piece succeeded")
    elif options.is_printed:
        print(text, end="")
    else:
        publish(text, os.environ["GITHUB_REPOSITORY"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
