"""Benchmarks of the engine against other engines: ``python -m tools.bench [accuracy | throughput]``."""

import sys

from tools.bench import command
from tools.bench.accuracy import command as accuracy
from tools.bench.throughput import command as throughput

COMMANDS = {"accuracy": accuracy.main, "throughput": throughput.main}

if __name__ == "__main__":
    chosen = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "")
    sys.exit(command.main() if chosen is None else chosen(sys.argv[2:]))
