"""Groups of nodes that share on-chip memory: what may be cut, what it costs, and which groups are best."""
