"""Steps, buffers and constants of an execution plan, and their places in the arena."""
