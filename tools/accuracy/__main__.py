"""Accuracy of INT8: ``labeled`` prints, ``ledger`` compares with a file, ``trained`` also measures other quantizers.

python -m tools.accuracy COMMAND [--help]
"""

import sys

from tools.accuracy import labeled, ledger
from tools.accuracy.trained import command as trained

COMMANDS = {"labeled": labeled.main, "ledger": ledger.main, "trained": trained.main}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print(__doc__, file=sys.stderr)
        sys.exit(0 if name in ("-h", "--help") else f"expected one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[name](sys.argv[2:]))
