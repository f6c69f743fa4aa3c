"""Conversions in continuous integration: a manifest of models with limits, a cache, reports."""
