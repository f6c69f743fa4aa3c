"""Rules of a user for single tensors, and their effects."""
