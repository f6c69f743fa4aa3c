"""The pieces of the nightly run, their results, and the issue about a failure."""
