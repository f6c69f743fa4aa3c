"""Write pages of docs/inside/benchmarks.json: ``python -m tools.pages.benchmark_page [--check]``.

The pages are benchmarks.md, and the section of accuracy.md with other quantizers. ``--store RUN FILE`` first replaces
a run by the document that a benchmark wrote into a file, such as ``python -m tools.bench --markdown build/bench.md``.
With ``--check`` nothing is written, and the exit code is 1 if a page is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tools.pages.benchmark_record import RECORD, Place, facts, read, store
from tools.pages.generated_file import replace_part

PAGE = RECORD.with_suffix(".md")
ACCURACY = RECORD.with_name("accuracy.md")
TOOL = "tools.pages.benchmark_page"
RUNS = (
    "networks",
    "networks without AMX",
    "load",
    "throughput",
    "conversion",
    "quantization",
    "accuracy",
    "chip programs",
)
NETWORKS = {"AMX": "networks", "AVX-512 VNNI": "networks without AMX"}
"""Runs of the same networks by the widest instructions of the machine."""
ENGINES = ("ONNX Runtime", "OpenVINO", "LiteRT", "MNN")
INTRODUCTION = """\
# Benchmarks

<!-- made by python -m tools.pages.benchmark_page -->

Speed and memory of tpuconvert on PCs, compared with other engines, converters and quantizers. The speed of a chip was
not measured. [benchmarks.json](benchmarks.json) has every row with its ranges, the times per kernel, and the reason of
each dash. Networks have seeded random weights; [tools/bench](../../tools/bench/README.md) describes them, the settings
and the method.

Programs run in turns on the same processors. A ratio is the time of another engine divided by the time of tpuconvert in
the same turn: above 1, tpuconvert is faster. Cells have the median, and the smallest and the largest ratio in brackets.
"""


def page() -> str:
    """Return the text of the page."""
    sections = [
        INTRODUCTION,
        _machines(),
        _networks("INT8, one thread", "INT8, one thread", "Median processor time of one image."),
        _networks("INT8, 2 threads", "INT8, 2 threads", "Shortest wall time of one image."),
        _networks("float32, one thread", "float32, one thread", "Median processor time of one image."),
        _networks("Opening a file", "Loading, one thread", "Verification, planning and packing of an INT8 model."),
        _memory(),
        _throughput(),
        _conversion(),
        _quantization(),
    ]
    return "\n".join(sections)


def _machines() -> str:
    rows = [["machine", "processor", "instructions", "measured", "versions"]]
    for machine, run in NETWORKS.items():
        about = facts(run)
        versions = ", ".join(f"{name} {about[name]}" for name in ("onnxruntime", "openvino", "nncf", "ai-edge-litert"))
        rows.append([machine, about["processor"], about["instructions"], about["measured"], versions])
    return _section("Machines", f"The networks below run on two machines: {_statement(*NETWORKS.values())}", rows)


def _networks(title: str, heading: str, about: str) -> str:
    names = [name for name in ENGINES if name in Place("networks", heading).rows()[0]]
    rows = [["network", "machine", "tpuconvert, ms", *names]]
    tables = {machine: Place(run, heading).rows() for machine, run in NETWORKS.items()}
    for network in dict.fromkeys(row["network"] for table in tables.values() for row in table):
        for machine, table in tables.items():
            rows += [
                [network, machine, row["tpuconvert, ms"], *(_ratio(row[name]) for name in names)]
                for row in table
                if row["network"] == network
            ]
    return _section(title, f"{about} {_statement(*NETWORKS.values())}", rows)


def _memory() -> str:
    columns = ["before, MB", "peak, MB", "file, MB", "arena, MB", "packed, MB"]
    rows = [["network", *columns]]
    rows += [[row["network"], *(row[name] for name in columns)] for row in Place("networks", "Memory").rows()]
    about = "Resident memory of a process that opens and runs an INT8 model: after the import, and at its peak."
    return _section("Memory", f"{about} {_statement('networks')}", rows)


def _throughput() -> str:
    latency = {
        (row["network"], row["clients"]): row
        for row in Place("throughput", "Latency of a request with one image").rows()
    }
    rows = [["network", "clients", "images per second", "ONNX Runtime", "OpenVINO", "latency, ms"]]
    for row in Place("throughput", "Images per second").rows():
        if row["batch"] == "1":
            delay = latency[row["network"], row["clients"]]["tpuconvert"]
            others = [_ratio(row[name]) for name in ("ONNX Runtime", "OpenVINO")]
            rows.append([row["network"], row["clients"], row["tpuconvert"], *others, delay])
    about = (
        "Requests with one image, from several clients at a time. A ratio is the throughput of tpuconvert divided by "
        "the throughput of the engine. Latency: median and 99th percentile of tpuconvert."
    )
    return _section("Throughput", f"{about} {_statement('throughput')}", rows)


def _conversion() -> str:
    table = Place("conversion", "Benchmarks of conversions").rows()
    names = [name for name in table[0] if name != "model"]
    rows = [["model", *names], *([row["model"], *(_time_and_memory(row[name]) for name in names)] for row in table)]
    about = (
        "Wall time and peak memory of complete processes. `copy` reads and writes the file, `openvino` reads the model "
        "and saves it, `ovc`, `mnnconvert` and its library `mnn_core` convert it."
    )
    return _section("Conversions", f"{about} {_statement('conversion')}", rows)


def _quantization() -> str:
    columns = ["network", "tool", "wall time, s", "processor time, s", "peak memory, MiB"]
    rows = [columns]
    for row in Place("quantization", "Benchmarks of quantization").rows():
        rows.append([row[name].split(" (")[0] for name in columns])
    many = Place("quantization", "Many samples").rows()
    memory = "; ".join(f"{row['network']} {row['samples']}: {row['peak memory, MiB']} MiB" for row in many)
    about = "Complete processes with 100 samples on one processor."
    (when,) = (section.text.rstrip(".") for section in read("quantization") if section.heading == "Many samples")
    text = f"{about} {_statement('quantization')}\n\nPeak memory by number of samples: {memory}. {when}."
    return _section("Quantization", text, rows)


ABOUT_QUANTIZERS = """\
# Other quantizers on the same models

INT8 networks of tpuconvert and of other quantizers on the same images. Of the other tools, the setting that is best on
the evaluation images is shown, so that the comparison favors them. *Flips*, in percent: images whose predicted class
differs from the class of the float network, with the standard error. Two tools whose numbers differ by less than two
standard errors are not distinguishable. Other tools run on the processor; BM1684 has one multiplier for all output
channels.
[benchmarks.json](benchmarks.json) has every setting with top-1 accuracy and cosine similarity.
"""


def quantizers() -> str:
    """Return the section of the accuracy of other quantizers."""
    tables = []
    for heading in ("Flips of classifiers", "Detections kept"):
        rows = Place("accuracy", heading).rows()
        cells = [[_without_setting(cell) for cell in row.values()] for row in rows]
        tables.append("\n".join([f"{heading}:", "", *_table([list(rows[0]), *cells]), ""]))
    better = [item for section in read("accuracy") for item in section.items if re.match(r"BM168\d: ", item)]
    lines = ["Another tool is better, though not always by two standard errors:", "", *(f"- {item}" for item in better)]
    statement = f"`{_command('accuracy')}`, measured {facts('accuracy')['measured']}.\n"
    return "\n".join([ABOUT_QUANTIZERS, statement, *tables, *lines, ""])


def _without_setting(cell: str) -> str:
    """Return ``2.00 ± 0.54`` of a cell like ``2.00 ± 0.54 (MIXED, accurate bias correction)``."""
    return cell.split(" (")[0]


def _statement(*runs: str) -> str:
    """Return command, version and date of runs of one command."""
    command = _command(runs[0])
    machines = {run: machine for machine, run in NETWORKS.items()}
    dates = [f"{_date(run)} on {machines.get(run) or facts(run).get('processor', 'one processor')}" for run in runs]
    return f"`{command}`, measured {' and '.join(dates)}."


def _command(run: str) -> str:
    """Return the module that a run came from, without its options."""
    text = read(run)[0].text
    match = re.search(r"python -m tools\.bench(?:\.\w+)?(?: throughput| accuracy)?", text)
    if match is None:
        sys.exit(f"{RECORD.name}: the run '{run}' names no command")
    return match[0]


def _date(run: str) -> str:
    described = facts(run).get("measured") or "".join(re.findall(r"Measured (20.*?)\.(?:\s|$)", read(run)[0].text))
    match = re.match(r"20\d\d-\d\d-\d\d with tpuconvert [\d.]*\d", described)
    if match is None:
        sys.exit(f"{RECORD.name}: the run '{run}' states no date and version")
    return match[0]


def _ratio(cell: str) -> str:
    """Return ``1.21 (1.18 to 1.23)`` of a cell like ``1.21 (1.18 to 1.23), 23.18 ms``."""
    return cell.rsplit(", ", 1)[0]


def _time_and_memory(cell: str) -> str:
    """Return ``0.24 s, 106 MiB`` of a cell like ``0.24 s (0.23 to 0.24), 106 MiB, 1.36 x``."""
    return ", ".join(part.split(" (")[0] for part in cell.split(", ")[:2])


def _section(title: str, text: str, rows: list[list[str]]) -> str:
    return "\n".join([f"## {title}", "", text, "", *_table(rows), ""])


def _table(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def main(arguments: list[str]) -> int:
    """Write or check the page. Return 1 if ``--check`` finds it stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the page is out of date")
    parser.add_argument("--store", nargs=2, metavar=("RUN", "FILE"), help=f"replace a run, one of {', '.join(RUNS)}")
    options = parser.parse_args(arguments)
    if options.store:
        run, file = options.store
        if run not in RUNS:
            parser.error(f"--store {run}: expected one of {', '.join(RUNS)}")
        store(run, Path(file).read_text(encoding="utf-8"))
    texts = {PAGE: page(), ACCURACY: replace_part(ACCURACY, "quantizers", TOOL, quantizers())}
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if options.check:
            print(f"{path.name} is out of date: run python -m {TOOL}", file=sys.stderr)
        else:
            path.write_text(texts[path], encoding="utf-8")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
