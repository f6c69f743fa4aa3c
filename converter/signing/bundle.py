"""Sigstore bundles that contain an in-toto statement in a DSSE envelope, signed with a key.

Formats: https://github.com/secure-systems-lab/dsse (protocol, version 1.0), in-toto attestations version 1, and the
Sigstore bundle of version 0.3 as JSON. A bundle with a certificate or of the transparency log is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass
from typing import Any

from tpuconvert.schema.bounded_files import read_text
from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.schema.json_text import parse_json

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True)
class Bundle:
    """A signed payload.

    Args:
        payload: the signed statement as JSON text, in exactly the signed bytes.
        signature: the signature of :func:`signed_bytes` of the payload, in DER form.
        key: identifier of the public key (``keys.key_id``); empty if the bundle has none.

    """

    payload: bytes
    signature: bytes
    key: str

    def to_json(self) -> str:
        """Return the text of the file."""
        envelope = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(self.signature).decode(), "keyid": ""}],
        }
        material = {"publicKey": {"hint": self.key}, "tlogEntries": []}
        content = {"mediaType": MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": envelope}
        return json.dumps(content, separators=(",", ":")) + "\n"


def signed_bytes(payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding (PAE) of DSSE."""
    return f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} ".encode() + payload


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle. Nothing in it is verified.

    Raises:
        OSError: the file cannot be read.
        ResourceLimitError: it is too large.
        CorruptInputError: it is no bundle, or one of another kind.

    """
    try:
        return parse_bundle(read_text(path))
    except CorruptInputError as error:
        raise CorruptInputError(error.message, file=os.fspath(path), hint=error.hint) from error
    except UnicodeDecodeError as error:
        raise CorruptInputError("is no Sigstore bundle: not UTF-8", file=os.fspath(path)) from error


def parse_bundle(text: str) -> Bundle:
    """Parse the text of a bundle. Raises CorruptInputError."""
    content = _parse_object(text, "bundle")
    kind = content.get("mediaType")
    if kind != MEDIA_TYPE:
        raise CorruptInputError(f"the media type is {kind!r}, expected {MEDIA_TYPE!r}")
    material = _member(content, "verificationMaterial", dict)
    if "publicKey" not in material:
        others = ", ".join(sorted(map(str, material)))
        raise CorruptInputError(
            f"the bundle is signed with {others or 'nothing'}, expected a public key",
            hint="model_signing verifies bundles with certificates and of the transparency log",
        )
    hint = _member(material, "publicKey", dict).get("hint") or ""
    envelope = _member(content, "dsseEnvelope", dict)
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        raise CorruptInputError(f"the payload type is {envelope.get('payloadType')!r}, expected {PAYLOAD_TYPE!r}")
    signatures = _member(envelope, "signatures", list)
    if len(signatures) != 1 or not isinstance(signatures[0], dict) or not isinstance(hint, str):
        raise CorruptInputError(f"the bundle has {len(signatures)} signatures, expected 1 with a key")
    return Bundle(_decode(_member(envelope, "payload", str)), _decode(_member(signatures[0], "sig", str)), hint)


def parse_payload(payload: bytes) -> dict[str, Any]:
    """Parse a verified payload as a JSON object. Raises CorruptInputError."""
    try:
        return _parse_object(payload.decode(), "statement")
    except UnicodeDecodeError as error:
        raise CorruptInputError("the signed statement is not UTF-8") from error


def _parse_object(text: str, name: str) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except ValueError as error:
        raise CorruptInputError(f"the {name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptInputError(f"the {name} is a JSON {type(content).__name__}, expected an object")
    return content


def _member(content: dict[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if not isinstance(value, kind):
        raise CorruptInputError(f"'{name}' is a {type(value).__name__} in the bundle, expected a {kind.__name__}")
    return value


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptInputError(f"the bundle has text that is not base64: {error}") from error
