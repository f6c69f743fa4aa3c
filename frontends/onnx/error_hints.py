"""Hints for problems of a model: outputs and inputs that cut the model, inputs to fix, similar operator names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tpuconvert.frontends import cuts
from tpuconvert.frontends.onnx.file import subgraph_extraction
from tpuconvert.frontends.onnx.file.messages import GraphProto, NodeProto
from tpuconvert.frontends.onnx.file.reader import reads_of
from tpuconvert.frontends.onnx.node import OnnxTensor, folds, onnx_op
from tpuconvert.frontends.onnx.unsupported_operators import DOMAINS, REASONS, reason
from tpuconvert.schema.errors import NO_OPERATOR, CorruptInputError, Problem, ProblemList
from tpuconvert.schema.graph.graph import Graph, Port, Value
from tpuconvert.schema.text.spelling import did_you_mean
from tpuconvert.schema.types import format_shape

MOST_FIXED_ELEMENTS = 16
"""Largest input that a hint suggests to fix to a constant; larger inputs are probably data."""


def complete(
    problems: ProblemList,
    source: GraphProto,
    nodes: Sequence[NodeProto],
    failed: set[int],
    outputs: Sequence[str],
    tensors: Mapping[str, OnnxTensor | None],
    graph: Graph,
) -> None:
    """Add hints to problems that have none.

    Args:
        problems: problems of the model.
        source: the main graph.
        nodes: needed nodes of the main graph, in topological order.
        failed: ``id()`` of each node with a problem.
        outputs: names of the outputs of the model.
        tensors: tensors of the main graph, by name.
        graph: the result of the import, which contains the converted nodes.
    """
    ports = {port.name: port for port in graph.input_ports}
    named = {problem.node for problem in problems}
    bad = [node for node in nodes if id(node) in failed or (node.name and node.name in named)]
    cut: str | None = None

    def add_hint(problem: Problem) -> Problem:
        nonlocal cut
        if problem.needs and not problem.hint and (hint := _fix(problem.needs, ports)):
            return problem.with_hint(hint)
        if problem.kind is not NO_OPERATOR or problem.op == "opset":
            return problem
        if cut is None:
            cut = _suggest_cut(source, nodes, bad, outputs, tensors)
        lines = [problem.hint] if problem.hint else []
        if cut != cuts.NO_PART or not lines:
            lines.append(cut)
        return problem.with_hint("\n".join(lines))

    problems.revise(add_hint)


def _suggest_cut(
    source: GraphProto,
    nodes: Sequence[NodeProto],
    bad: Sequence[NodeProto],
    outputs: Sequence[str],
    tensors: Mapping[str, OnnxTensor | None],
) -> str:
    def find(name: str) -> Value | None:
        tensor = tensors.get(name)
        return tensor.value if tensor is not None and tensor.array is None else None

    ids = set(map(id, bad))
    steps = [cuts.Step(frozenset(reads_of(node)), tuple(node.output), id(node) not in ids) for node in nodes]
    return cuts.advice(cuts.ends(steps, outputs, find), _begins(source, bad, outputs))


def _begins(source: GraphProto, bad: Sequence[NodeProto], outputs: Sequence[str]) -> list[str]:
    """Return the outputs of the nodes with problems, if a model that begins there contains none of these nodes."""
    ids = set(map(id, bad))
    read = {name for node in source.node for name in reads_of(node)}
    begins = [name for node in bad for name in node.output if name in read]
    if not begins or any("," in name for name in begins):
        return []
    try:
        rest = subgraph_extraction.needed_nodes(source, begins, outputs, "")
    except CorruptInputError:
        return []
    return begins if rest and ids.isdisjoint(map(id, rest)) else []


def _fix(needs: Sequence[str], ports: Mapping[str, Port]) -> str:
    """Return a hint to fix the needed inputs; empty if one is not a model input or has too many elements."""
    inputs = [ports[name] for name in needs if name in ports]
    sizes = [math.prod(extent for extent in port.shape if isinstance(extent, int)) for port in inputs]
    if not inputs or len(inputs) != len(needs) or max(sizes) > MOST_FIXED_ELEMENTS:
        return ""
    is_open = [port.name for port in inputs if not all(isinstance(extent, int) for extent in port.shape)]
    if is_open:
        return f"set the extents of the input:  {' '.join(f'--input-shapes {name}=...' for name in is_open)}"
    types = ", ".join(f"{port.name} {port.dtype}{format_shape(port.shape)}" for port in inputs)
    words = " ".join(f"--fix-input {port.name}=VALUE" for port in inputs)
    what = "the input that decides it" if len(inputs) == 1 else "the inputs that decide it"
    return f"fix {what} ({types}):  {words}"


def explain_unknown(operator: str, domain: str, version: int, *, has_outputs: bool) -> tuple[str, str]:
    """Return the message and the hint for an operator without a converter in the given version of its domain."""
    versions = onnx_op.versions(operator, domain=domain) or folds.versions(operator, domain=domain)
    if versions:
        message = f"supported from version {versions[0]} on; the model has {version}"
        return message, "export the model with a newer opset"
    if why_not := reason(operator, domain):
        return why_not, ""
    hint = _similar_operator(operator, domain)
    if domain:
        plugin = f"register a converter:  --plugin (domain '{domain}', operator '{operator}')"
        return "", f"{hint}\n{plugin}" if hint else plugin
    return "" if has_outputs else "has no outputs", hint


def _similar_operator(operator: str, domain: str) -> str:
    """Return a hint for an operator with a wrong name or domain, or an empty string if no operator is similar."""
    elsewhere = [
        other for other in ("", *onnx_op.domains()) if other != domain and onnx_op.versions(operator, domain=other)
    ]
    if elsewhere:
        where = "the standard (an empty domain)" if not elsewhere[0] else f"the domain '{elsewhere[0]}'"
        return f"did you mean the operator of {where}?"
    names = {*onnx_op.names(domain=domain), *folds.names(domain=domain), *(REASONS if not domain else ())}
    if not names and domain not in DOMAINS:
        names = set(onnx_op.names(domain=None))
    return did_you_mean(operator, names)
