"""Descriptions of models and operators, rendered as text, JSON and HTML."""
