"""``python tools/bench``."""

import sys
from pathlib import Path

# Python puts this folder on the path; the package and the other tools need the folder above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import command  # noqa: E402  the path is set above
from bench.accuracy import command as accuracy  # noqa: E402
from bench.throughput import command as throughput  # noqa: E402

COMMANDS = {"accuracy": accuracy.main, "throughput": throughput.main}

if __name__ == "__main__":
    chosen = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "")
    sys.exit(command.main() if chosen is None else chosen(sys.argv[2:]))
