"""Accuracy of INT8 models: labeled models of the test data, and trained models of public wheels."""
