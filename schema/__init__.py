"""schema package."""
