"""Options of a conversion, each declared once."""
