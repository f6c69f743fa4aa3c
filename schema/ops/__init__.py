"""The operator definitions: one module for an operator or a family, found by importing every module of this folder."""
