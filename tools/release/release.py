"""Check that a release is consistent: ``python -m tools.release.release [--tag v1.2.3] [--dist FOLDER] [--notes F]``.

The version has one home, ``version`` in setup.cfg. The program compares it with the newest heading of CHANGELOG.md,
with the versions that pages and action.yml show, and with the tag. With ``--dist``, it also checks the files to
publish: one source distribution, and for each platform one wheel per ABI of at most ``MOST_WHEEL_BYTES``. The exit code
is 1 if something is wrong; every problem is printed.
"""

import argparse
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_WHEEL_BYTES = 6_000_000
ABIS = ("cp311-cp311", "cp312-abi3")
"""Python and ABI tags that each platform has a wheel of."""
PLATFORMS = (
    r"manylinux_2_\d+_x86_64",
    r"manylinux_2_\d+_aarch64",
    r"musllinux_1_\d+_x86_64",
    r"musllinux_1_\d+_aarch64",
    r"macosx_\d+_\d+_x86_64",
    r"macosx_\d+_\d+_arm64",
    r"win_amd64",
)
SHOWN = {
    "docs/guides/ci.md": re.compile(r"(?:/tpuconvert@v|rev: v)([0-9][0-9.]*[0-9])"),
    "action.yml": re.compile(r"tpuconvert==([0-9][0-9.]*[0-9])"),
    "CITATION.cff": re.compile(r"^version: ([0-9][0-9.]*[0-9])", re.MULTILINE),
}
"""Files that show the version to users, and the pattern of it."""


def read_version(root: Path = ROOT) -> str:
    """Return the version of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    return config["metadata"]["version"]


def version_problems(root: Path, tag: str | None) -> Iterator[str]:
    """Yield a sentence for each file whose version differs from the version in setup.cfg."""
    version = read_version(root)
    heading = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = heading[1] if heading else "no heading"
    if newest.split()[0] != version:
        yield f"CHANGELOG.md: the newest heading is '{newest}', expected {version} as in setup.cfg"
    for name, pattern in SHOWN.items():
        versions = pattern.findall((root / name).read_text(encoding="utf-8"))
        if not versions:
            yield f"{name}: shows no version; expected {version}"
        yield from (f"{name}: shows version {other}, expected {version}" for other in versions if other != version)
    if tag is not None and tag != f"v{version}":
        yield f"the tag is {tag}, expected v{version} as in setup.cfg"


def release_notes(root: Path = ROOT) -> str:
    """Return the section of CHANGELOG.md about the version, without its heading."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.escape(read_version(root))
    section = re.search(rf"^## {version}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        sys.exit(f"CHANGELOG.md: no heading for version {read_version(root)}")
    return section[1].strip() + "\n"


def distribution_problems(folder: Path, version: str) -> Iterator[str]:
    """Yield a sentence for each file that is missing from a folder of distributions, too large or unexpected."""
    absent = {(abi, platform) for abi in ABIS for platform in PLATFORMS}
    sources = f"tpuconvert-{version}.tar.gz"
    if not (folder / sources).is_file():
        yield f"{sources} is missing"
    for file in sorted(folder.iterdir()):
        if file.name == sources:
            continue
        fits = {(abi, platform) for abi, platform in absent if is_wheel(file.name, version, abi, platform)}
        if not fits:
            yield f"{file.name} is unexpected, or there are two of its kind"
        elif file.stat().st_size > MOST_WHEEL_BYTES:
            yield f"{file.name} has {file.stat().st_size} bytes, expected at most {MOST_WHEEL_BYTES}"
        absent -= fits
    yield from (f"the wheel {abi} for {platform} is missing" for abi, platform in sorted(absent))


def is_wheel(name: str, version: str, abi: str, platform: str) -> bool:
    """Return True if a file name names a wheel with these tags. It may have several platform tags."""
    pattern = rf"tpuconvert-{re.escape(version)}-{abi}-(?:{platform})(?:\.{platform})*\.whl"
    return re.fullmatch(pattern, name) is not None


def main() -> int:
    """Print every problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="tag of the release")
    parser.add_argument("--dist", type=Path, help="folder with the files to publish, and nothing else")
    parser.add_argument("--notes", type=Path, help="file for the section of CHANGELOG.md about the version")
    options = parser.parse_args()
    problems = list(version_problems(ROOT, options.tag))
    if options.dist is not None:
        problems += distribution_problems(options.dist, read_version())
    for problem in problems:
        print(problem, file=sys.stderr)
    if options.notes is not None and not problems:
        options.notes.write_text(release_notes(), encoding="utf-8")
    if not problems:
        print(f"tpuconvert {read_version()}: consistent")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
