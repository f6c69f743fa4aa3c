"""Heads, one layout of outputs per file. Adding a file is enough: its decorator registers the class."""
