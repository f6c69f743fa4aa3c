"""Campaigns of damaged files and changed models, and faults injected into results."""
