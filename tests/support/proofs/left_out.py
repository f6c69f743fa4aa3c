"""Cases that the proofs of a rule leave out, with the reason. Random graphs cover them.

A rule of this list need not be decided by the proofs, but a refutation counts.
"""

from __future__ import annotations

LEFT_OUT: dict[str, str] = {
    "decompose_attention": "minus infinities of a computed mask that hides whole rows are not real numbers",
    "recognize_attention": "minus infinities in masks and NaN of a softmax are not real numbers",
}
