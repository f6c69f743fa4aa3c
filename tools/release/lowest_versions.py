"""Print the lowest allowed version of each required package, as constraints for pip.

``python -m tools.release.lowest_versions > lowest.txt`` turns ``click>=8.2`` in setup.cfg into ``click==8.2``. CI runs
the tests with ``pip install --constraint lowest.txt .``, so that every bound is a version with which the package works.
"""

import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"
BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9][0-9.]*)")


def lowest_versions(setup: Path) -> Iterator[str]:
    """Yield a constraint for each required package of a setup.cfg.

    Raises:
        SystemExit: a requirement is not of the form ``name>=version``.
    """
    config = configparser.ConfigParser()
    config.read(setup, encoding="utf-8")
    for line in config["options"]["install_requires"].split():
        bound = BOUND.fullmatch(line)
        if bound is None:
            sys.exit(f"{setup.name}: found the requirement '{line}', expected 'name>=version'")
        yield f"{bound['name']}=={bound['version']}"


if __name__ == "__main__":
    print("\n".join(lowest_versions(SETUP)))
