"""Export the networks of the zoo with PyTorch's exporters. Needs the extra ``zoo``."""

import copy
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree

from tools.zoo.files import CALIBRATION, EXPORTERS, Export, Made, load_samples, save_samples
from tools.zoo.networks import networks
from tools.zoo.networks.network import Network
from tools.zoo.variants import FROM_FILES, half_module, quantize_by_torch

SAMPLES = 12
"""Number of samples that are stored for each network."""


def make(
    folder: Path, names: Sequence[str], exporters: Iterable[str], opsets: Sequence[int], *, is_verbose: bool = True
) -> None:
    """Export networks, each with a fixed and an open batch. Files that exist are kept.

    Args:
        folder: receives the models, the samples, and a note for each export that PyTorch refused.
        names: names of the networks; empty for all.
        exporters: keys of EXPORTERS and VARIANTS.
        opsets: opsets to export, of those in EXPORTERS; empty for all.
        is_verbose: print a line for each export.
    """
    torch.set_num_threads(1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # hide warnings about missing torchvision
    folder.mkdir(parents=True, exist_ok=True)
    all_networks = list(networks())
    describe(all_networks).save(folder)
    for network in all_networks:
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
            if export.exporter in EXPORTERS:
                reason = export_one(module, network, export, folder, programs)
            else:
                reason = make_variant(module, network, export, folder)
            if reason:
                export.refusal_path(folder).write_text(reason + "\n", encoding="utf-8")
            if is_verbose:
                print(f"{export.name}: {reason or 'made'}", flush=True)


def describe(all_networks: Iterable[Network]) -> Made:
    """Return the families of networks, and the versions of the packages that define and export them."""
    packages = {network.name: network.package for network in all_networks if network.package}
    versions = {name: version(name) for name in ("torch", "onnx", *sorted(set(packages.values())))}
    return Made(versions, {network.name: network.family or network.name for network in all_networks}, packages)


def samples(network: Network) -> dict[str, np.ndarray[Any, Any]]:
    """Return samples of batch 1, stacked along a new first axis, by the name of the input."""
    arguments = [_pytree.tree_flatten(network.arguments(seed, 1))[0] for seed in range(SAMPLES)]
    return {name: np.stack([one[k].numpy() for one in arguments]) for k, name in enumerate(network.input_names)}


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
    names: dict[str, Any] = {"input_names": list(network.input_names), "output_names": list(network.output_names)}

    def write(path: Path) -> None:
        # with gradients enabled: otherwise attention uses a fast path that has no ONNX equivalent
        if export.exporter == "dynamo":
            if export.batch not in programs:
                shapes = network.dynamic_shapes(arguments) if is_open else None
                programs[export.batch] = torch.export.export(module, arguments, dynamic_shapes=shapes)
            program = torch.onnx.export(
                programs[export.batch], (), dynamo=True, opset_version=export.opset, verbose=False, **names
            )
            program.save(str(path), external_data=False)
            return
        names["dynamic_axes"] = network.dynamic_axes() if is_open else None
        if network.is_training:
            names["training"] = torch.onnx.TrainingMode.PRESERVE
        torch.onnx.export(module, arguments, str(path), dynamo=False, opset_version=export.opset, **names)

    return reason_of_refusal(export, folder, write)


def make_variant(module: torch.nn.Module, network: Network, export: Export, folder: Path) -> str:
    """Make a variant of a network, from its module or from the file of the dynamo exporter.

    Returns:
        The reason why it could not be made; empty if the file was written.
    """
    if export.exporter in FROM_FILES:
        source = replace(export, exporter="dynamo").path(folder)
        chosen = load_samples(folder, network.name)[:CALIBRATION]
        return reason_of_refusal(export, folder, lambda path: FROM_FILES[export.exporter](source, path, chosen))
    if export.exporter == "half":
        changed = half_module(copy.deepcopy(module))
    else:
        arguments = [network.arguments(seed, 1) for seed in range(CALIBRATION)]
        try:
            changed = quantize_by_torch(copy.deepcopy(module), arguments)
        except Exception as error:  # the module cannot be traced
            return first_line(error)
    return export_one(changed, network, export, folder, {})


def reason_of_refusal(export: Export, folder: Path, write: Callable[[Path], None]) -> str:
    """Write a model with this function, and rename it after it is complete and has the opset of the export.

    Returns:
        The reason why no model was written; empty if it was.
    """
    path = export.path(folder)
    unfinished = path.with_suffix(".unfinished")
    try:
        with quiet():
            write(unfinished)
    except Exception as error:  # any exception of the exporter is a refusal
        unfinished.unlink(missing_ok=True)
        return first_line(error)
    found = next(entry.version for entry in onnx.load(str(unfinished)).opset_import if entry.domain in ("", "ai.onnx"))
    if found != export.opset:
        unfinished.unlink()
        return f"it wrote opset {found}"
    unfinished.replace(path)
    return ""


def first_line(error: Exception) -> str:
    """Return the type and the first line of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and output; the exporters also print from C++."""
    sys.stdout.flush()
    copies = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        with warnings.catch_warnings(), Path(os.devnull).open("w") as nowhere:
            warnings.simplefilter("ignore")
            for descriptor in (1, 2):
                os.dup2(nowhere.fileno(), descriptor)
            yield
    finally:
        sys.stdout.flush()
        for descriptor, saved in zip((1, 2), copies, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
