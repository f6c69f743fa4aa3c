"""Accuracy of INT8: ``labeled`` prints, ``ledger`` compares with a file, ``trained`` also measures other quantizers.

python tools/accuracy COMMAND [--help]
"""

import sys
from pathlib import Path

# Python puts this folder on the path; the package and the other tools need the folder above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from accuracy import labeled, ledger  # noqa: E402  the path is set above
from accuracy.trained import command as trained  # noqa: E402

COMMANDS = {"labeled": labeled.main, "ledger": ledger.main, "trained": trained.main}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print(__doc__, file=sys.stderr)
        sys.exit(0 if name in ("-h", "--help") else f"expected one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[name](sys.argv[2:]))
