"""A graph pattern for every optimizer rule, and measures of termination."""
