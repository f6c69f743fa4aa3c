"""Layer grouping: tiling rules, cost model and planner for nodes that share on-chip memory."""
