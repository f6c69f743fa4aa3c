"""``python tools/aarch64``."""

import sys
from pathlib import Path

# Python puts this folder on the path; the other tools need the folder above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from aarch64.command import main  # noqa: E402  the path is set above

if __name__ == "__main__":
    sys.exit(main())
