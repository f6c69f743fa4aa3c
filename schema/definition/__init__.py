"""Definition of operators: base class, dtypes per chip, checks of shapes."""
