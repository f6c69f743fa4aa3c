"""Files and memory of the operating system: limits, digests, mapped pages, atomic replacement."""
