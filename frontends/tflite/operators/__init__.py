"""Converters of TFLite operators."""
