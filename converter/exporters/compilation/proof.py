"""Contents of ``proof.json``: what was compiled, with which versions, and how its results compare with tpuconvert's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from tpuconvert.exporters.compilation.cycles import CycleEstimate, describe_estimate
from tpuconvert.exporters.manifest import HostNode
from tpuconvert.exporters.tpu_mlir.run_bmodel import Difference, compare_tensor
from tpuconvert.schema.text.visible_text import one_line
from tpuconvert.schema.types import Array
from tpuconvert.text.text_format import several

PROOF = "proof.json"
"""File of a compiled export."""

FORMAT = 1
"""Version of the file."""

Kind = Literal["integers", "integers after floats", "floats", "results of the host"]

KINDS: tuple[Kind, ...] = ("integers", "integers after floats", "floats", "results of the host")


class ComparedTensors(TypedDict):
    """Tensors of one kind that were compared, in all samples."""

    kind: Kind
    tensors: int
    accepted: Annotated[int, "tensors without a difference, or within the tolerance of the kind"]
    equal: Annotated[int, "tensors without a difference"]
    largest_difference: Annotated[float | None, "null if a tensor is missing"]
    magnitude: Annotated[float, "largest magnitude of the tensor with this difference"]
    tensor: Annotated[str, "name of that tensor"]


class DifferingTensor(TypedDict):
    """A tensor whose difference is not accepted."""

    name: str
    difference: str


class Attempt(TypedDict):
    """One compilation, and the run of its program."""

    level: Annotated[int, "level of layer grouping"]
    outcome: Literal["accepted", "differs", "failed"]
    reason: Annotated[str, "why it failed, or how many tensors differ"]
    seconds: Annotated[dict[str, float], "wall time of each step"]


class SimulatorVersion(TypedDict):
    """The library with the simulator, which has no version of its own."""

    library: str
    sha256: str


class Proof(TypedDict):
    """Contents of proof.json."""

    format: int
    is_accepted: Annotated[
        bool, "whether integers are equal, and floats and what follows from them within their bounds"
    ]
    tpuconvert: str
    compiler: str
    simulator: SimulatorVersion
    chip: str
    program_digest: Annotated[str, "digest of the model"]
    model_sha256: Annotated[str | None, "SHA-256 of the exported .tpum file; null for a model in memory"]
    files: Annotated[dict[str, str], "SHA-256 of each file that the comparison used"]
    samples: int
    tolerance: Annotated[float, "accepted difference of floats, as a share of the largest magnitude"]
    tensors: list[ComparedTensors]
    differing: list[DifferingTensor]
    level: Annotated[int, "level of layer grouping of the program"]
    attempts: list[Attempt]
    seconds: Annotated[float, "wall time of all attempts, and of the search for nodes that do not compile"]
    host_nodes: list[HostNode]
    cycles: Annotated[CycleEstimate | None, "null if the compiler wrote no profile"]


class TensorComparison(TypedDict):
    """One compared tensor."""

    name: str
    kind: Kind
    difference: Difference


def compare_program(
    manifest: Mapping[str, Any], expected: Mapping[str, Array], results: Mapping[str, Array]
) -> list[TensorComparison]:
    """Compare the tensors that a program returned with those that tpuconvert computed."""
    comparisons: list[TensorComparison] = []
    for output in manifest["outputs"]:
        name, ours = output["name"], expected[output["name"]]
        kind: Kind = "integers" if output["is_exact"] else "integers after floats"
        if ours.dtype.kind == "f":
            kind = "floats"
        difference = compare_tensor(dict(manifest), ours, results.get(name), output)
        comparisons.append({"name": name, "kind": kind, "difference": difference})
    return comparisons


def compare_host(
    manifest: Mapping[str, Any], expected: Mapping[str, Array], results: Mapping[str, Array]
) -> list[TensorComparison]:
    """Compare the outputs of the model that the host computed from the tensors of a program."""
    described = {item["name"]: item for item in manifest["results"] if not item["source"]}
    # Outputs of other extents in each sample have names of their own: ``boxes[0]``.
    names = [name for name in expected if name in described or name.rpartition("[")[0] in described]
    return [
        {
            "name": name,
            "kind": "results of the host",
            "difference": compare_tensor(
                dict(manifest), expected[name], results.get(name), described.get(name, {"is_exact": False})
            ),
        }
        for name in names
    ]


def summarize(comparisons: Sequence[TensorComparison]) -> list[ComparedTensors]:
    """Return one entry for each kind of tensors, with the largest difference relative to its tensor."""
    kinds: list[ComparedTensors] = []
    for kind in KINDS:
        items = [item for item in comparisons if item["kind"] == kind]
        if not items:
            continue
        worst = max(items, key=lambda item: _relative(item["difference"]))
        largest, magnitude = worst["difference"].largest, worst["difference"].magnitude
        kinds.append(
            {
                "kind": kind,
                "tensors": len(items),
                "accepted": sum(item["difference"].is_accepted for item in items),
                "equal": sum(item["difference"].differing == 0 for item in items),
                "largest_difference": None if largest == float("inf") else largest,
                "magnitude": magnitude,
                "tensor": worst["name"] if worst["difference"].differing else "",
            }
        )
    return kinds


def _relative(difference: Difference) -> float:
    return difference.largest / difference.magnitude if difference.magnitude else difference.largest


def differing_tensors(comparisons: Iterable[TensorComparison]) -> list[DifferingTensor]:
    """Return the tensors whose difference is not accepted."""
    return [
        {"name": item["name"], "difference": item["difference"].text}
        for item in comparisons
        if not item["difference"].is_accepted
    ]


def digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files of a folder."""
    return {name: file_sha256(folder / name) for name in files}


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_kind(item: ComparedTensors) -> str:
    """Return the text about the tensors of one kind: "12 of 12 integers equal"."""
    if item["equal"] == item["tensors"]:
        return f"{item['equal']} of {item['tensors']} {item['kind']} equal"
    largest = "a missing tensor" if item["largest_difference"] is None else f"{item['largest_difference']:.2g}"
    where = f"{largest} of {item['magnitude']:.2g} in '{one_line(item['tensor'])}'"
    verb = "equal" if item["kind"] == "integers" else "within the bound"
    return f"{item['accepted']} of {item['tensors']} {item['kind']} {verb}, largest difference {where}"


def describe_proof(proof: Proof) -> list[str]:
    """Return the lines of ``export --compile`` about a comparison."""
    lines = [f"  compared  {describe_kind(item)}" for item in proof["tensors"]]
    lines += [f"  differs   '{one_line(item['name'])}': {item['difference']}" for item in proof["differing"][:10]]
    lines += [
        f"  attempt   layer grouping at level {attempt['level']}: {attempt['outcome']}, {attempt['reason']}"
        for attempt in proof["attempts"]
        if attempt["outcome"] != "accepted"
    ]
    compiled = f"layer grouping at level {proof['level']}, {proof['seconds']:.0f} s"
    lines.append(f"  compiled  {proof['compiler']} for {proof['chip']}, {compiled}")
    return lines if proof["cycles"] is None else [*lines, f"  cycles    {describe_estimate(proof['cycles'])}"]


def describe_files(name: str) -> str:
    """Return the rows of README.md about the files of a compiled program."""
    return f"""| `{name}.bmodel` | the compiled program |
| `{PROOF}` | versions, digests, and the result of the comparison |
| `{name}.log` | output of the compiler and of the simulator |
"""


def describe_verdict(proof: Proof) -> str:
    """Return the first sentences of README.md."""
    where = f"in the simulator of {proof['chip']} with {proof['compiler']}, on {several(proof['samples'], 'sample')}"
    kinds = "; ".join(describe_kind(item) for item in proof["tensors"])
    if proof["is_accepted"]:
        return (
            f"Compiled, run {where}, and compared with tpuconvert {proof['tpuconvert']}: {kinds}. `proof.json` has the "
            "details. A simulator is not a device: `run.py` compares the stored samples there."
        )
    names = ", ".join(f"`{one_line(item['name'])}`" for item in proof["differing"][:10])
    return (
        f"Compiled, and run {where}. **The program differs from tpuconvert {proof['tpuconvert']}; do not use it.** "
        f"Differing: {names}; {kinds}. `proof.json` has the details."
    )
