"""Mixed-precision search: which nodes to keep in float so that a model is accurate enough."""
