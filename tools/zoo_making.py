"""Export the networks of the zoo with PyTorch's exporters. Needs the extra ``zoo``."""

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree
from zoo_files import Export, Made, save_samples
from zoo_networks import networks
from zoo_networks.network import Network

SAMPLES = 12
"""Number of samples that are stored for each network: 8 calibrate, 4 are compared."""


def make(
    folder: Path, names: Sequence[str], exporters: Iterable[str], opsets: Sequence[int], *, is_verbose: bool = True
) -> None:
    """Export networks, each with a fixed and an open batch. Files that exist are kept.

    Args:
        folder: receives the models, the samples, and a note for each export that PyTorch refused.
        names: names of the networks; empty for all.
        exporters: keys of EXPORTERS.
        opsets: opsets to export, of those in EXPORTERS; empty for all.
        is_verbose: print a line for each export.
    """
    torch.set_num_threads(1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # hide warnings about missing torchvision
    folder.mkdir(parents=True, exist_ok=True)
    known = list(networks())
    describe(known).save(folder)
    for network in known:
        if names and network.name not in names:
            continue
        exports = [
            Export(network.name, exporter, opset, batch)
            for exporter, opset, batch in network.exports
            if exporter in exporters and (not opsets or opset in opsets)
        ]
        missing = [export for export in exports if not export.is_made(folder)]
        if not missing:
            continue
        module = network.module()
        save_samples(folder, network.name, samples(network))
        programs: dict[str, Any] = {}
        for export in missing:
            reason = export_one(module, network, export, folder, programs)
            if reason:
                export.refusal_path(folder).write_text(reason + "\n", encoding="utf-8")
            if is_verbose:
                print(f"{export.name}: {reason or 'made'}", flush=True)


def describe(known: Iterable[Network]) -> Made:
    """Return the families of networks, and the versions of the packages that define and export them."""
    packages = {network.name: network.package for network in known if network.package}
    versions = {name: version(name) for name in ("torch", "onnx", *sorted(set(packages.values())))}
    return Made(versions, {network.name: network.family or network.name for network in known}, packages)


def samples(network: Network) -> dict[str, np.ndarray[Any, Any]]:
    """Return samples of batch 1, stacked along a new first axis, by the name of the input."""
    made = [_pytree.tree_flatten(network.arguments(seed, 1))[0] for seed in range(SAMPLES)]
    return {name: np.stack([one[k].numpy() for one in made]) for k, name in enumerate(network.input_names)}


def export_one(
    module: torch.nn.Module, network: Network, export: Export, folder: Path, programs: dict[str, Any]
) -> str:
    """Export a network once.

    Args:
        module: the network with its weights.
        network: names and axes of the inputs and outputs.
        export: exporter, opset and batch to use.
        folder: receives the file.
        programs: programs from ``torch.export`` by batch, which are shared by all opsets.

    Returns:
        The reason why PyTorch refused the network; empty if the file was written.
    """
    is_open = export.batch == "open"
    arguments = network.arguments(0, 2 if is_open else 1)
    path = export.path(folder)
    unfinished = path.with_suffix(".unfinished")
    names: dict[str, Any] = {"input_names": list(network.input_names), "output_names": list(network.output_names)}
    try:
        with quiet():  # with gradients enabled: otherwise attention uses a fast path that has no ONNX equivalent
            if export.exporter == "torchscript":
                names["dynamic_axes"] = network.dynamic_axes() if is_open else None
                torch.onnx.export(module, arguments, str(unfinished), dynamo=False, opset_version=export.opset, **names)
            else:
                if export.batch not in programs:
                    shapes = network.dynamic_shapes(arguments) if is_open else None
                    programs[export.batch] = torch.export.export(module, arguments, dynamic_shapes=shapes)
                program = torch.onnx.export(
                    programs[export.batch], (), dynamo=True, opset_version=export.opset, verbose=False, **names
                )
                program.save(str(unfinished), external_data=False)
    except Exception as error:  # any exception of the exporter is a refusal
        unfinished.unlink(missing_ok=True)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
    found = next(entry.version for entry in onnx.load(str(unfinished)).opset_import if entry.domain in ("", "ai.onnx"))
    if found != export.opset:
        unfinished.unlink()
        return f"it wrote opset {found}"
    unfinished.replace(path)
    return ""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and output; the exporters also print from C++."""
    sys.stdout.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        with warnings.catch_warnings(), Path(os.devnull).open("w") as nowhere:
            warnings.simplefilter("ignore")
            for descriptor in (1, 2):
                os.dup2(nowhere.fileno(), descriptor)
            yield
    finally:
        sys.stdout.flush()
        for descriptor, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
