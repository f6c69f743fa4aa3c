"""Graphs, charts and pages for tests of the report."""
