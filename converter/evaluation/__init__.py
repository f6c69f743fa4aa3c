"""Measures of a model on labelled samples: accuracy, mean average precision, mean IoU, and functions of the user."""
