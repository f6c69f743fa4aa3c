"""Accuracy of INT8 models: labelled models of the test data, and trained models of public wheels."""
