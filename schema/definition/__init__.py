"""What an operator declares: base class, dtypes per chip, checks of shapes."""
