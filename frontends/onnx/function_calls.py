"""Calls of functions of a model or of the standard: the names in the body, and its own opset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tpuconvert.frontends.cannot_convert import CannotConvertError
from tpuconvert.frontends.onnx.file.messages import AttributeProto, FunctionProto, NodeProto
from tpuconvert.frontends.onnx.file.reader import NEWEST_OPSET, OnnxModel, function_opsets, operators_of
from tpuconvert.frontends.onnx.node import OnnxTensor
from tpuconvert.frontends.onnx.output_tensors import Scope
from tpuconvert.frontends.onnx.standard_functions import has_other_schema
from tpuconvert.schema.errors import INVALID_NODE, NO_OPERATOR


def attributes_of(node: NodeProto, of_call: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """Attributes by name; in a function, references are replaced by the attributes of the call.

    Raises:
        CannotConvertError: two attributes have the same name.
    """
    attributes: dict[str, AttributeProto] = {}
    for attribute in node.attribute[:]:
        name = attribute.name
        if name in attributes:
            raise CannotConvertError(INVALID_NODE, f"has its attribute {name} twice")
        if not attribute.ref_attr_name:
            attributes[name] = attribute
        elif attribute.ref_attr_name in of_call:
            attributes[name] = of_call[attribute.ref_attr_name]
    return attributes


def body_scope(
    function: FunctionProto,
    call: NodeProto,
    inputs: Sequence[OnnxTensor | None],
    model: OnnxModel,
    prefix: str,
    of_call: Mapping[str, AttributeProto],
    depth: int,
) -> Scope:
    """Return the names that the body of a function sees: its inputs and the attributes of its call.

    Args:
        function: the function.
        call: the node that calls it.
        inputs: inputs of the call; None for one that is left out.
        model: the model, whose opsets apply where the function states none.
        prefix: prefix of the names of the body's nodes and tensors.
        of_call: attributes of the call around ``call``, to which its own attributes may refer.
        depth: number of scopes around the body.

    Raises:
        CannotConvertError: the call does not fit the function.
    """
    attributes = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes.update(attributes_of(call, of_call))
    declared = {*function.attribute, *(attribute.name for attribute in function.attribute_proto)}
    if unknown := [key for key in attributes if key not in declared]:
        raise CannotConvertError(INVALID_NODE, f"function {function.name} has no attribute {unknown[0]}")
    for what, operands, names in (("inputs", call.input, function.input), ("outputs", call.output, function.output)):
        if len(operands) > len(names):
            message = f"{len(operands)} {what}, but function {function.name} has {len(names)}"
            raise CannotConvertError(INVALID_NODE, message)
    scope = Scope(function_opsets(function, model), None, prefix, {}, {}, attributes, depth)
    arguments = dict(zip(function.input, inputs, strict=False))
    scope.tensors.update({key: tensor for key, tensor in arguments.items() if tensor is not None})
    scope.absent = frozenset(key for key in function.input if arguments.get(key) is None)
    return scope


def notes_of_other_opsets(function: FunctionProto, versions: Mapping[str, int], model: OnnxModel) -> Iterator[str]:
    """Yield a note per domain with operators that have another meaning in the opset of the model.

    The standard does not permit such a function. Its nodes are computed as the function says; ONNX Runtime takes
    the opset of the model.

    Args:
        function: a function of the model.
        versions: opset versions of the function that differ from the model, by domain.
        model: the model.

    Raises:
        CannotConvertError: a version is newer than every supported one.
    """
    name = f"{function.domain}:{function.name}" if function.domain else function.name
    for domain, version in versions.items():
        if not domain and version > NEWEST_OPSET:
            message = f"function {name} has opset {version}; the newest known opset is {NEWEST_OPSET}"
            raise CannotConvertError(NO_OPERATOR, message, f"export it with opset {NEWEST_OPSET} or lower")
        of_model = model.opsets[domain]
        operators = sorted(
            key for key in operators_of(function, domain) if has_other_schema(key, domain, version, of_model)
        )
        if operators:
            yield (
                f"warning: function {name} has opset {version}, its model {of_model}, in which"
                f" {', '.join(operators)} may have another meaning: computed by opset {version}"
            )
