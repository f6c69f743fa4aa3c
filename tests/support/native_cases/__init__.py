"""Small seeded graphs at the level of the operator set, for comparing the native engine with the references.

``make(kind, seed)`` builds one; ``KINDS`` lists the kinds. A case contains its operands and the results of the
references, which were computed node by node while the graph was built.
"""

from tests.support.native_cases import (  # noqa: F401  they register kinds
    chains,
    elementwise,
    floats,
    fused,
    general,
    general_conv,
    general_indexed,
    general_matmul,
    int16,
    linear,
    movement,
    networks,
    ordering,
    recurrent,
    rescaling,
    residual,
)
from tests.support.native_cases.draft import KINDS, Kind, NativeCase, make

__all__ = ["KINDS", "Kind", "NativeCase", "make"]
