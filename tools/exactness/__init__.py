"""Comparisons of results with the engines of the source formats and the vendor's simulator, operator by operator."""
