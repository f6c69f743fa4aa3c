"""Definitions shared by all of tpuconvert: data types, chips, operators, the graph, errors and the file format.

This package imports no other part of tpuconvert.
"""
