"""Cross build of the native engine for AArch64, an emulated Python that loads it, and instruction costs of its loops.

``python -m tools.aarch64`` (or ``python -m tools.aarch64``) lists the commands.
"""
