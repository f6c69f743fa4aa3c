"""The native engine: a graph becomes a flat plan of compiled kernels over one arena."""
