"""Measures of a model on labeled samples: accuracy, mean average precision, mean IoU, and functions of the user."""
