"""Text that is safe to print, JSON, HTML, and suggestions for misspelled names."""
