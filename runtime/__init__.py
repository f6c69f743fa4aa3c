"""Execution of model files. This package needs no source format and no converter."""
