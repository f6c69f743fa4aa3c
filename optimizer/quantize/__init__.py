"""quantize package."""
