"""Proofs that a firing of an optimizer rule keeps the results, over the real numbers."""
