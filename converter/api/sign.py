"""``tpuconvert.sign`` and ``tpuconvert.verify_signature``: signatures in the format of OpenSSF Model Signing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuconvert.results import Result
from tpuconvert.schema.errors import SignatureError, UsageError
from tpuconvert.schema.file_replacement import replacing
from tpuconvert.schema.input_files import refuse_input
from tpuconvert.signing import keys
from tpuconvert.signing.bundle import Bundle, read_bundle, signed_bytes
from tpuconvert.signing.model_files import Serialization, hash_files, model_name, relative_ignored
from tpuconvert.signing.statement import SignedFiles, read_signed_files
from tpuconvert.styled_text import concat, style
from tpuconvert.text_format import several

SUFFIX = ".sig"
"""Suffix of a signature file: the default name is the path of the model with this suffix appended."""

_MOST_NAMES = 4
"""Largest number of file names in a message."""


@dataclass(frozen=True, repr=False)
class Signature(Result):
    """A signature of a model that was written or verified.

    Args:
        model: the file or folder.
        signature: the file with the signature.
        key: identifier of the public key: SHA-256 of its PEM form.
        algorithm: algorithm of the digests.
        files: name relative to the model -> digest in hexadecimal digits; "." is a model of one file.
        verified: whether the files were compared with an existing signature.

    """

    model: str
    signature: str
    key: str
    algorithm: str
    files: Mapping[str, str]
    verified: bool

    def lines(self) -> list[str]:
        """Return number of files, name of the signature, and key."""
        count = several(len(self.files), "file" if "sharded" not in self.algorithm else "part")
        verdict = style("the signature is valid", "good") if self.verified else "signed"
        return [concat([f"{self.model}: ", verdict, f", {count}: {self.signature}"]), f"key {self.key}"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``sign --json`` and ``verify-signature --json`` print them."""
        files = [{"name": name, "digest": digest} for name, digest in self.files.items()]
        return {**vars(self), "files": files}


def sign(
    model: str | os.PathLike[str],
    *,
    key: keys.Key,
    password: str | bytes | None = None,
    output: str | os.PathLike[str] | None = None,
    ignore: Sequence[str | os.PathLike[str]] = (),
    allow_symlinks: bool = False,
) -> Signature:
    """Sign a model with a private key.

    The signature is a Sigstore bundle as OpenSSF Model Signing defines it; ``model_signing verify key`` accepts it.
    Equal files and keys give equal bytes.

    Args:
        model: A file, or a folder of which all files are signed.
        key: The private key in PEM form, as path or bytes: an elliptic-curve key (P-256, P-384 or P-521).
        password: Password of an encrypted key.
        output: File for the signature; None for the path of the model with ``.sig`` appended.
        ignore: Paths in the folder that are not signed. Those of Git never are, nor the signature itself.
        allow_symlinks: Whether to follow links to files. Without it a link is an error.

    Returns:
        The signed files and their digests.

    Raises:
        UsageError: The key is not usable, there is no file to sign, or a link or device in the folder.
        MissingExtraError: The package ``cryptography`` is not installed.

    Example:
        >>> tc.convert("digits.onnx").save("digits.tpum")
        >>> tc.sign("digits.tpum", key="key.pem").signature
        'digits.tpum.sig'

    """
    path = Path(model)
    target = f"{os.fspath(model).rstrip(os.sep)}{SUFFIX}" if output is None else os.fspath(output)
    refuse_input(target, [os.path.abspath(path)])
    private = keys.read_private_key(key, password)
    is_folder = os.path.isdir(path)
    inside = [os.path.abspath(target)] if is_folder and _is_inside(target, path) else []
    how = Serialization(
        allow_symlinks=allow_symlinks, ignore_paths=relative_ignored(path, [*ignore, *inside], is_folder=is_folder)
    )
    signed = SignedFiles(model_name(path), how, hash_files(path, how))
    if not signed.files:
        raise UsageError("the folder has no file to sign", file=os.fspath(model))
    payload, key_id = signed.to_payload(), keys.key_id(private.public_key())
    bundle = Bundle(payload, keys.sign_bytes(private, signed_bytes(payload)), key_id)
    with replacing(target) as file:
        file.write(bundle.to_json().encode())
    return Signature(os.fspath(model), target, key_id, how.algorithm, signed.files, verified=False)


def verify_signature(
    model: str | os.PathLike[str],
    *,
    key: keys.Key,
    signature: str | os.PathLike[str] | None = None,
    ignore_unsigned: bool = False,
) -> Signature:
    """Verify that a model has exactly the files that were signed with a key.

    Signatures of ``tpuconvert sign`` and of ``model_signing sign key`` are accepted.

    Args:
        model: The file or folder.
        key: The public key in PEM form, as path or bytes.
        signature: The file with the signature; None for the path of the model with ``.sig`` appended.
        ignore_unsigned: Whether a folder may have files that are not signed.

    Returns:
        The verified files and their digests. An invalid signature is an error, never a result.

    Raises:
        SignatureError: The signature was made with another key, or a file was changed, added or removed.
        CorruptInputError: The signature is malformed, or of a kind without a key.
        UsageError: The key is not usable.
        MissingExtraError: The package ``cryptography`` is not installed.

    Example:
        >>> tc.verify_signature("digits.tpum", key="key.pub").verified
        True

    """
    path = Path(model)
    place = f"{os.fspath(model).rstrip(os.sep)}{SUFFIX}" if signature is None else os.fspath(signature)
    public = keys.read_public_key(key)
    bundle, key_id = read_bundle(place), keys.key_id(public)
    if bundle.key and bundle.key != key_id:
        found = f"the signature was made with another key: {bundle.key[:16]}..., the given one is {key_id[:16]}..."
        raise SignatureError(found, file=place, hint="give the public key of the signer")
    keys.verify_bytes(public, bundle.signature, signed_bytes(bundle.payload))
    signed = read_signed_files(bundle.payload)
    found_files = hash_files(path, signed.how, signed.files if ignore_unsigned else None)
    if found_files != signed.files:
        raise SignatureError(_difference(found_files, signed.files), file=os.fspath(model))
    return Signature(os.fspath(model), place, key_id, signed.how.algorithm, signed.files, verified=True)


def _is_inside(path: str, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _difference(found: Mapping[str, str], signed: Mapping[str, str]) -> str:
    """Return the changed, missing and additional files as text."""
    kinds = {
        "changed": [name for name in signed if name in found and found[name] != signed[name]],
        "missing": [name for name in signed if name not in found],
        "not signed": [name for name in found if name not in signed],
    }
    parts = []
    for kind, names in kinds.items():
        if names:
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            parts.append(f"{kind}: {', '.join(map(repr, names[:_MOST_NAMES]))}{more}")
    return f"the files are not those that were signed; {'; '.join(parts)}"
