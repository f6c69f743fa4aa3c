"""In-toto statements about models: what OpenSSF Model Signing signs.

The statement lists every file with its digest. Its subject is the model with the SHA-256 of all these digests, in their
order, so that other documents can refer to the model by one number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuconvert.schema.errors import CorruptInputError
from tpuconvert.signing.bundle import parse_payload
from tpuconvert.signing.model_files import Serialization

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True)
class SignedFiles:
    """The files of a model as a statement lists them.

    Args:
        model: name of the model, for information.
        how: how the files were hashed.
        files: name -> digest in hexadecimal digits.

    """

    model: str
    how: Serialization
    files: Mapping[str, str]

    def to_payload(self) -> bytes:
        """Return the statement as JSON text."""
        resources = [
            {"name": name, "algorithm": self.how.algorithm, "digest": digest} for name, digest in self.files.items()
        ]
        predicate = {"serialization": self.how.to_dict(), "resources": resources}
        return to_statement(self.model, _root_digest(self.files), PREDICATE_TYPE, predicate)


def to_statement(name: str, sha256: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Return an in-toto statement about one subject as JSON text, deterministically."""
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }
    return json.dumps(statement, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def read_signed_files(payload: bytes) -> SignedFiles:
    """Read the list of files of a verified payload.

    Raises:
        CorruptInputError: the statement is malformed, lists no file, or its digests contradict each other.

    """
    statement = parse_payload(payload)
    found = statement.get("_type"), statement.get("predicateType")
    if found == (STATEMENT_TYPE, PROVENANCE_TYPE):
        return _read_provenance(statement)
    if found != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise CorruptInputError(f"the statement is of type {found}, expected {(STATEMENT_TYPE, PREDICATE_TYPE)}")
    try:
        (subject,) = statement["subject"]
        model, total = subject["name"], subject["digest"]["sha256"]
        predicate = statement["predicate"]
        how = Serialization.from_dict(predicate["serialization"])
        resources = [(item["name"], item["algorithm"], item["digest"]) for item in predicate["resources"]]
        files = {name: digest for name, _, digest in resources}
        if not all(isinstance(text, str) for item in (*resources, (model, total)) for text in item):
            raise TypeError("expected text")
        sum_of_digests = _root_digest(files)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(f"the statement is malformed: {type(error).__name__}: {error}") from error
    wrong = next((algorithm for _, algorithm, _ in resources if algorithm != how.algorithm), None)
    if wrong is not None:
        raise CorruptInputError(f"a digest is {wrong!r}, but the files were hashed with {how.algorithm!r}")
    if not files or len(files) != len(resources):
        raise CorruptInputError("the statement lists no file" if not files else "the statement lists a file twice")
    if sum_of_digests != total:
        raise CorruptInputError("the digest of the model is not that of the listed files")
    return SignedFiles(model, how, files)


def _read_provenance(statement: dict[str, Any]) -> SignedFiles:
    """Read the subject of a statement of provenance: a model of one file."""
    try:
        (subject,) = statement["subject"]
        name, digest = subject["name"], subject["digest"]["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptInputError(f"the statement is malformed: {type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not isinstance(digest, str):
        raise CorruptInputError("the subject of the statement has no name or no digest")
    return SignedFiles(name, Serialization(), {".": digest})


def _root_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 of the digests of all files. Raises ValueError for text that is not hexadecimal."""
    found = hashlib.sha256()
    for digest in files.values():
        found.update(bytes.fromhex(digest))
    return found.hexdigest()
