"""Draw whole graphs from the registered steps."""

from __future__ import annotations

from tests.support.onnx.random_graphs import control, elementwise, movement, networks, reducing
from tests.support.onnx.random_graphs.drawing import BOOL, F32, I64, INTEGERS, Declined, Drawing, Settings
from tests.support.onnx.random_graphs.registry import STEPS

FAMILIES = (control, elementwise, movement, networks, reducing)


def draw_graph(seed: int, settings: Settings | None = None) -> Drawing:
    """A graph of some inputs and at least one step."""
    d = Drawing(seed, settings or Settings())
    names = [name for name, entry in STEPS.items() if entry.is_calm or not d.settings.is_calm]
    weights = [STEPS[name].weight for name in names]
    total = sum(weights)
    chances = [weight / total for weight in weights]
    for _ in range(d.integer(1, 2)):
        d.input(d.main, d.fresh_shapes())
    if d.chance(0.3):
        d.input(d.choose([I64, F32, BOOL, *INTEGERS]), d.fresh_shapes())
    wanted, attempts = d.integer(1, d.settings.steps), 0
    while len(d.steps) < wanted and attempts < 6 * wanted:
        attempts += 1
        d.try_step(STEPS[names[int(d.rng.choice(len(names), p=chances))]].function)
    return d


__all__ = ["Declined", "draw_graph"]
