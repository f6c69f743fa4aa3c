"""Matrix products, in float and in integers."""
