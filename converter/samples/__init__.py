"""Samples: images and arrays as inputs of a model, with their preprocessing."""
