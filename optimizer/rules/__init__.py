"""Rewrite rules. Every module of this folder is imported; a decorated function is a rule."""
