"""Functions of the ONNX standard: operators that it defines by other operators, used if there is no converter.

The bodies are part of the ``onnx`` package; nothing of a user's file is passed to it but names and versions. Functions
whose body depends on the attributes or types of a node are not included.
"""

from __future__ import annotations

from functools import lru_cache

from tpuconvert.frontends.onnx.file.messages import FunctionProto
from tpuconvert.frontends.onnx.file.reader import NEWEST_OPSET
from tpuconvert.frontends.onnx.node import onnx_op
from tpuconvert.frontends.onnx.unsupported_operators import REASONS
from tpuconvert.frontends.registry import Kind, Registration

DOMAINS = ("",)
"""Domains with supported functions; functions of ai.onnx.ml and ai.onnx.preview are not supported."""


@lru_cache(maxsize=256)
def standard_function(operator: str, domain: str, version: int) -> FunctionProto | None:
    """Return the function body of an operator in an opset, with its attributes' defaults; None if it has no body."""
    if domain not in DOMAINS or not 1 <= version <= NEWEST_OPSET:
        return None
    from onnx import defs  # 75 ms, needed only for operators without a converter

    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated or not schema.has_function:  # type: ignore[attr-defined]  # missing in the package's stubs
        return None
    body: FunctionProto = schema.function_body  # onnx returns a new message at each access, which may be modified
    own = {attribute.name for attribute in body.attribute_proto}
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    body.attribute_proto.extend(default for default in defaults if default.name and default.name not in own)
    plain = [name for name in schema.attributes if name not in {a.name for a in body.attribute_proto}]
    del body.attribute[:]
    body.attribute.extend(plain)
    return body


@lru_cache(maxsize=4096)
def has_other_schema(operator: str, domain: str, version: int, other: int) -> bool:
    """Return True if an operator has different schemas in two opsets; False in a domain that the standard lacks."""
    from onnx import defs  # 75 ms, needed only for functions of other opsets than their model's

    if domain not in _standard_domains():
        return False
    since = []
    for opset in (version, other):
        try:
            since.append(defs.get_schema(operator, opset, domain).since_version)
        except defs.SchemaError:
            since.append(0)
    return since[0] != since[1]


@lru_cache(maxsize=1)
def _standard_domains() -> frozenset[str]:
    """Domains of the operators in the standard."""
    from onnx import defs  # see has_other_schema

    return frozenset(schema.domain for schema in defs.get_all_schemas())


def registrations() -> list[Registration]:
    """Return an entry for every operator with a function body, for the tables of operators."""
    from onnx import defs

    versions: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        is_ours = schema.domain in DOMAINS and schema.name not in REASONS and not schema.deprecated
        if is_ours and standard_function(schema.name, schema.domain, schema.since_version) is not None:
            versions[schema.name] = min(schema.since_version, versions.get(schema.name, schema.since_version))
    how = "expanded to its function body in the ONNX standard"
    return [
        Registration(name, "", since, standard_function, Kind.DECOMPOSED, how)
        for name, since in sorted(versions.items())
    ]


onnx_op.others = registrations
