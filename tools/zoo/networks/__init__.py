"""Small networks with random weights and the structure of well-known ones. They need PyTorch.

``tools.zoo make`` exports them. One module per family; each has a list ``NETWORKS``.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from tools.zoo.networks.network import Network


def networks() -> Iterator[Network]:
    """Return the networks of all modules of this folder, in the order of the module names."""
    for module in pkgutil.iter_modules(__path__):
        yield from getattr(importlib.import_module(f"{__name__}.{module.name}"), "NETWORKS", ())
