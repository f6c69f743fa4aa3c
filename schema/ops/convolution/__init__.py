"""Convolutions, in float and in integers."""
