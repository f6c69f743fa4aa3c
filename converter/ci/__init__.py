"""Models as a step of continuous integration: a manifest of conversions with limits, a cache, reports."""
