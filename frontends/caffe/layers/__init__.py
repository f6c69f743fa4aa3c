"""Converters of Caffe layers."""
