"""The vocabulary of tpuconvert: data types, chips, operators, the graph, errors and the file format.

This package knows no other part of tpuconvert; everything else speaks in its words.
"""
