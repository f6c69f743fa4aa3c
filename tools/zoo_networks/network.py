"""A network of the zoo: how to build it, its inputs and outputs, and which axes are the batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

SETTLING = 16
"""Number of samples that give batch normalizations their statistics."""

Inputs = Callable[[int], tuple[Any, ...]]
"""Function of the batch size that returns random arguments of ``forward``. Arguments may be tuples of tensors."""


@dataclass(frozen=True)
class Network:
    """A network of the zoo.

    Attributes:
        name: unique; files are named for it.
        build: creates the module with random weights.
        inputs: random arguments of ``forward`` for a batch size.
        input_names: one per tensor of the arguments, tuples flattened.
        output_names: one per tensor of the results.
        batch_axes: axis of the batch, for names where it is not 0; None where an input has none.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)

    def module(self) -> nn.Module:
        """Return the module in evaluation mode; its weights are the same in every process."""
        torch.manual_seed(sum(self.name.encode()))
        module = self.build()
        settle(module, self.inputs(SETTLING))
        return module.eval()

    def arguments(self, seed: int, batch: int) -> tuple[Any, ...]:
        """Return random arguments; equal seeds give equal arguments."""
        torch.manual_seed(seed)
        return self.inputs(batch)

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """Return the open axes of inputs and outputs, for the TorchScript exporter."""
        names = (*self.input_names, *self.output_names)
        axes = {name: self.batch_axes.get(name, 0) for name in names}
        return {name: {axis: "batch"} for name, axis in axes.items() if axis is not None}

    def dynamic_shapes(self, arguments: tuple[Any, ...]) -> Any:
        """Return the open axes in the structure of the arguments, for the dynamo exporter."""
        batch = torch.export.Dim("batch", min=1, max=64)
        axes = [self.batch_axes.get(name, 0) for name in self.input_names]
        _, structure = _pytree.tree_flatten(arguments)
        return _pytree.tree_unflatten([{} if axis is None else {axis: batch} for axis in axes], structure)


def settle(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    """Set the batch norm statistics to those of the samples, so that activations have a sensible range."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
        norm.momentum = None  # use the average over all batches, not a moving average
    if norms:
        module.train()
        with torch.no_grad():
            module(*arguments)


def images(*shape: int) -> Inputs:
    """Return a function that creates a batch of smooth images in the value range of normalized photographs."""

    def make(batch: int) -> tuple[Tensor]:
        coarse = torch.randn(batch, shape[0], *(max(1, extent // 4) for extent in shape[1:]))
        mode = "trilinear" if len(shape) == 4 else "bilinear"
        smooth = nn.functional.interpolate(coarse, size=shape[1:], mode=mode, align_corners=False)
        return (smooth + 0.3 * torch.randn(batch, *shape),)

    return make
