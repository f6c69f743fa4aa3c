"""Build and run the engine for AArch64 on an emulated processor: ``python -m tools.aarch64 COMMAND``."""

import sys

from tools.aarch64.command import main

if __name__ == "__main__":
    sys.exit(main())
