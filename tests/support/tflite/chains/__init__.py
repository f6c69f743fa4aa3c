"""Random graphs of quantized TFLite operators, for comparison with the reference kernels.

A seed determines a model and the arrays to run it on. Operators are applied to tensors that exist already, most often
to the newest; a tensor may be used several times, and an intermediate one may also be an output.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np

from tests.support.tflite.chains.builder import Chain
from tests.support.tflite.chains.registry import steps
from tests.support.tflite.models import S

FEWEST, MOST = 2, 8
"""Number of operators of a chain."""

_ATTEMPTS = 40


def make_chain(seed: int) -> Chain:
    """Build the chain of a seed."""
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        importlib.import_module(f"{__name__}.{module.name}")
    generator = np.random.default_rng(seed)
    chain = Chain(generator)
    for _ in range(1 + int(generator.random() < 0.4)):
        chain.add_input()
    wanted = int(generator.integers(FEWEST, MOST + 1))
    known = steps()
    weights = np.asarray([step.weight for step in known])
    order = generator.choice(len(known), _ATTEMPTS, p=weights / weights.sum())
    for number in order:
        if len(chain.operators) >= wanted:
            break
        step = known[number]
        x = chain.choose(step.types, step.ranks)
        if x is not None:
            step.apply(chain, x)
    chain.chosen = chain.outputs()
    return chain


def model_of(chain: Chain) -> S:
    """Return the chain as a subgraph, whose outputs are the unused tensors and some intermediate ones."""
    return S(chain.tensors, chain.operators, chain.inputs, chain.chosen)


def arrays_of(chain: Chain, seed: int) -> dict[str, Any]:
    """Random arrays for the inputs by name: integers of the whole range, among them the limits."""
    generator = np.random.default_rng([seed, 1])
    found = {}
    for index in chain.inputs:
        tensor = chain.tensors[index]
        limits = np.iinfo(tensor.type.lower())
        array = generator.integers(limits.min, limits.max, tensor.shape, endpoint=True)
        found[tensor.name] = array.astype(tensor.type.lower())
    return found
