"""Example plugin: custom operators of a company "Acme" for tpuconvert."""
