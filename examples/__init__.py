"""Data of the bundled example; ``tpuconvert demo`` finds them here both in a checkout and in an installed package."""
