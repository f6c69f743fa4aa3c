"""Signatures: names of the inputs and outputs of a subgraph for its callers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.frontends.tflite.file.reader import ModelFile, Subgraph, decode_text
from tpuconvert.schema.errors import UsageError


@dataclass(frozen=True)
class Signature:
    """One signature; ``inputs`` and ``outputs`` map the index of a tensor in the subgraph to its signature name."""

    key: str = ""
    subgraph: int = 0
    inputs: Mapping[int, str] = field(default_factory=dict)
    outputs: Mapping[int, str] = field(default_factory=dict)

    def names(self, subgraph: Subgraph) -> dict[int, str]:
        """Signature names by tensor index, without those that are also the name of a tensor of the subgraph."""
        own = {tensor.name for tensor in subgraph.tensors}
        return {index: name for index, name in {**self.inputs, **self.outputs}.items() if name not in own}


def signatures(file: ModelFile) -> tuple[Signature, ...]:
    """Read all signatures of a file.

    Raises:
        CorruptInputError: a signature refers to a subgraph or tensor that does not exist.
    """
    model, defined = file.model, []
    for number in range(model.SignatureDefsLength()):
        source = model.SignatureDefs(number)
        index, where = source.SubgraphIndex(), f"signature_defs[{number}]"
        if index >= len(file.subgraphs):
            file.corrupt(f"{where} names subgraph {index} of {len(file.subgraphs)}")
        count = len(file.subgraphs[index].tensors)
        maps = []
        for length, item in ((source.InputsLength(), source.Inputs), (source.OutputsLength(), source.Outputs)):
            maps.append(_names(file, (item(i) for i in range(length)), count, where))
        defined.append(Signature(decode_text(source.SignatureKey()), index, *maps))
    return tuple(defined)


def _names(file: ModelFile, entries: Iterable[Any], count: int, where: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for entry in entries:
        if entry.TensorIndex() >= count:
            file.corrupt(f"{where} names tensor {entry.TensorIndex()} of {count}")
        name = decode_text(entry.Name())
        if name and name not in names.values():
            names[entry.TensorIndex()] = name
    return names


def choose(file: ModelFile, key: str | None) -> Signature:
    """Return the signature with a key; without a key, the only one, or an empty one for a file without signatures.

    Raises:
        UsageError: no signature has this key, or the key is missing and the file has several signatures.
    """
    defined = signatures(file)
    keys = ", ".join(f"'{signature.key}'" for signature in defined) or "none"
    if key is not None:
        for signature in defined:
            if signature.key == key:
                return signature
        raise UsageError(f"{file.path}: there is no signature '{key}'", hint=f"signatures of the model: {keys}")
    if len(defined) > 1:
        raise UsageError(f"{file.path}: it has {len(defined)} signatures: {keys}", hint="choose one: --signature NAME")
    return defined[0] if defined else Signature()
