"""Throughput with batches and several requests at a time, and latency under load."""
