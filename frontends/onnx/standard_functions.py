"""Operators that the standard itself defines by other operators, for those without a converter of their own.

The bodies come with the ``onnx`` package and do not depend on a user's file; only names and numbers are looked up.
Functions whose body the standard builds for a particular node are not among them.
"""

from __future__ import annotations

from functools import lru_cache

from tpuconvert.frontends.onnx.messages import FunctionProto
from tpuconvert.frontends.onnx.node import onnx_op
from tpuconvert.frontends.onnx.reader import NEWEST_OPSET
from tpuconvert.frontends.onnx.unsupported_operators import REASONS
from tpuconvert.frontends.registry import Kind, Registration

DOMAINS = ("",)
"""Where operators are looked up; functions of machine learning and of previews are none of ours."""


@lru_cache(maxsize=256)
def standard_function(operator: str, domain: str, version: int) -> FunctionProto | None:
    """The body of an operator in the meaning of an opset, with the default values of its attributes filled in."""
    if domain not in DOMAINS or not 1 <= version <= NEWEST_OPSET:
        return None
    from onnx import defs  # takes its time, and most models need none of it

    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated or not schema.has_function:  # type: ignore[attr-defined]  # missing in the package's stubs
        return None
    body = FunctionProto.FromString(schema.function_body.SerializeToString())
    given = {attribute.name for attribute in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            body.attribute_proto.add().ParseFromString(attribute.default_value.SerializeToString())
    plain = [name for name in schema.attributes if name not in {a.name for a in body.attribute_proto}]
    del body.attribute[:]
    body.attribute.extend(plain)
    return body


def registrations() -> list[Registration]:
    """An entry for every operator that has such a body, for the tables."""
    from onnx import defs

    found: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        is_ours = schema.domain in DOMAINS and schema.name not in REASONS and not schema.deprecated
        if is_ours and standard_function(schema.name, schema.domain, schema.since_version) is not None:
            found[schema.name] = min(schema.since_version, found.get(schema.name, schema.since_version))
    how = "as the standard defines it by other operators"
    return [
        Registration(name, "", since, standard_function, Kind.DECOMPOSED, how) for name, since in sorted(found.items())
    ]


onnx_op.others = registrations
