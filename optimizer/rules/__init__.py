"""The rewrite rules. Every module of this folder is loaded by the engine; there is no list to edit."""
