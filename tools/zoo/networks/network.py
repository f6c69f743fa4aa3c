"""A network of the zoo: how to build it, its inputs and outputs, and which axes are the batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from tools.zoo.files import BATCHES, EXPORTERS, VARIANTS
from tools.zoo.networks.scenes import scene

SETTLING = 32
"""Number of samples that give batch normalizations their statistics."""

ONCE = (("dynamo", 20, "fixed"), ("torchscript", 17, "open"))
"""Exporter, opset and batch of the exports of most networks."""

EVERY = tuple(
    (exporter, opset, batch) for exporter, opsets in EXPORTERS.items() for batch in BATCHES for opset in opsets
)
"""The exports of networks that are exported with every opset."""

VARIED = tuple((variant, 17 if variant in ("half", "torch_qat") else 20, "fixed") for variant in VARIANTS)
"""The variants of some networks: from the dynamo exporter's file, or from a module by the TorchScript exporter."""

BATCH_NORM = nn.modules.batchnorm._BatchNorm

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
        family: name of the family; empty if it is the network's.
        package: package that defines the module; empty for the modules in this folder.
        exports: exporter, opset and batch of each export.
        is_training: True if the module is exported in training mode: batch norms use the statistics of the batch.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    family: str = ""
    package: str = ""
    exports: tuple[tuple[str, int, str], ...] = ONCE
    is_training: bool = False

    def module(self) -> nn.Module:
        """Return the module in its mode of the export. Its weights are the same in every process."""
        torch.manual_seed(sum(self.name.encode()))
        module = self.build()
        settle(module, self.inputs(SETTLING))
        return module.train(self.is_training)

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
    """Give a module with initial weights the properties of a trained one, and set it to evaluation mode.

    Initial weights are meant for the start of training: layer scales are almost 0, position embeddings and the last
    norm of a residual branch too. Weak ones are made stronger, and norms differ from channel to channel. The batch norm
    statistics are computed from the samples.

    Biases of batch norms are drawn around 1, so that most activations are in the linear part of ReLU and the like.
    With biases around 0, a deep network with random weights amplifies every change of its input by about 1.2 per layer
    (Yang et al., "A Mean Field Theory of Batch Normalization", 2019), also the rounding of floats. A trained one does
    not.
    """
    with torch.no_grad():
        tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
        for part in module.modules():
            kind = "batch norm" if isinstance(part, BATCH_NORM) else "norm" if "Norm" in type(part).__name__ else ""
            for name, values in part.named_parameters(recurse=False):
                if values.is_floating_point() and id(values) not in tables:
                    strengthen(name, values, kind)
    module.eval()
    norms = [part for part in module.modules() if isinstance(part, BATCH_NORM)]
    for norm in norms:
        norm.momentum = None  # use the average over all batches, not a moving average
        norm.train()
    if norms:
        with torch.no_grad():
            module(*arguments)
        module.eval()


def strengthen(name: str, values: Tensor, norm: str) -> None:
    """Draw the values of a norm, and scale up other weights that are weaker than they are in trained networks."""
    if norm and values.ndim == 1:
        is_batch = norm == "batch norm"
        if "bias" in name:
            nn.init.normal_(values, mean=1.0 if is_batch else 0.0, std=0.2)
        else:
            nn.init.uniform_(values, 0.5, 1.0 if is_batch else 1.5)
    elif values.ndim > 1:
        target = (1.5 / values[0].numel()) ** 0.5 if name.startswith("weight") else 0.2
        deviation = float(values.std()) if values.numel() > 1 else 0.0
        if 0.0 < deviation < 0.75 * target:
            values.mul_(target / deviation)
        elif deviation == 0.0 and not values.any():
            nn.init.normal_(values, std=target)
    elif "bias" not in name and values.numel() > 1 and float(values.abs().max()) < 0.1:
        nn.init.uniform_(values, 0.2, 0.8)  # layer scale


def images(*shape: int) -> Inputs:
    """Return a function that creates a batch of scenes: see ``scene``."""
    return lambda batch: (torch.stack([scene(shape) for _ in range(batch)]),)
