"""Descriptions and tables of operators, and tests of an operator."""
