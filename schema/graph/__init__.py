"""Graph, values and nodes, and what is computed from them: types, cost, legality, states."""
