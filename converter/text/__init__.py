"""Text for terminals and messages: tables, numbers, names, and results that print themselves."""
