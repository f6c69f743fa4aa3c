"""The vendor's compiler and simulator, and its TPULang functions in NumPy."""
