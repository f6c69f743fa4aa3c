"""``python tools/bench``."""

import sys
from pathlib import Path

# Python puts this folder on the path; the package and the other tools need the folder above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import command  # noqa: E402  the path is set above
from bench.accuracy import command as accuracy  # noqa: E402

if __name__ == "__main__":
    sys.exit(accuracy.main(sys.argv[2:]) if sys.argv[1:2] == ["accuracy"] else command.main())
