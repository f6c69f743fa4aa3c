"""A second implementation of every integer operator, in plain Python integers, one element at a time.

``ORACLES`` maps an operator to a function that draws one example of it and returns its expected results. Nothing here
computes with NumPy; arrays are only made to hand them to the operator.
"""

from tests.support.operators.integer_oracles import atomics, element_wise, movement, products, rescaling, windows
from tests.support.operators.integer_oracles.base import ORACLES, Example, Sampler, examples

__all__ = [
    "ORACLES",
    "Example",
    "Sampler",
    "atomics",
    "element_wise",
    "examples",
    "movement",
    "products",
    "rescaling",
    "windows",
]
