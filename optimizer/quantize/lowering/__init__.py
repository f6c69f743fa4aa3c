"""Integer forms of operators, by chip."""
