"""``python tools/bench``."""

import sys
from pathlib import Path

# Python puts the folder it runs first on the path; what is imported is the package, and the tools beside it.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.command import main  # noqa: E402  the path is set above

if __name__ == "__main__":
    sys.exit(main())
