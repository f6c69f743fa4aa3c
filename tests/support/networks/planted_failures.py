"""Failures that the tests of ``tpuconvert reduce`` plant in networks."""

SECRET = "customer-17"
"""Part of all names, which no reduced model may have."""


def raising_plugin(source: str, axis: int) -> str:
    """Return a plugin whose converter raises an exception if an axis has more than one element."""
    return f'''
import tpuconvert as tc


@tc.register_converter("{source}", "Fragile")
def fragile(node, g):
    """Copy of the input; an exception for planes of more than one pixel."""
    if node.shape(0)[{axis}] > 1:
        raise KeyError("no such plane")
    return node.input(0)
'''
