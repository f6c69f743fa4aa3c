"""The operator definitions: one module for an operator or a family, found by importing every module of this folder.

Imports that only ``reference`` needs are inside it: most definitions are loaded to describe a graph, not to compute.
"""
