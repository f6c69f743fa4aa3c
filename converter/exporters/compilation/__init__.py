"""Compilation of an export: the vendor's compiler and simulator, where they are installed."""
