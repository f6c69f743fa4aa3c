"""Metrics of the task that the outputs of a network serve: detections, text, classes and masks."""
