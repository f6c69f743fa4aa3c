"""Export to a Python program of the vendor's TPULang API, with the integers of the model."""
