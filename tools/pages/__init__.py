"""Generators of pages, tables and pictures of the documentation, and of files in the package."""
