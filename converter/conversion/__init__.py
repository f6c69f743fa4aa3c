"""Steps of a conversion: load, optimize, quantize, build; and the functions that call them."""
