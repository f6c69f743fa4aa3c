"""Elliptic-curve keys: reading, signing and verifying. The package ``cryptography`` is imported on first use."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, cast

from tpuconvert.schema.absent_file import absent_file
from tpuconvert.schema.bounded_files import read_bounded
from tpuconvert.schema.errors import MissingExtraError, SignatureError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

Key = str | os.PathLike[str] | bytes
"""A key in PEM form: its file, or its bytes."""

_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""Curve -> hash of the signature. Sigstore has no others."""


def read_private_key(key: Key, password: str | bytes | None = None) -> EllipticCurvePrivateKey:
    """Read a private key.

    Args:
        key: the key in PEM form (PKCS #8 or SEC 1).
        password: password of an encrypted key.

    Raises:
        UsageError: the file cannot be read.
        UsageError: it is no private key on a supported curve, or the password is missing or wrong.
        MissingExtraError: ``cryptography`` is not installed.

    """
    crypto = _cryptography()
    secret = password.encode() if isinstance(password, str) else password
    try:
        found = crypto.serialization.load_pem_private_key(_pem(key), secret)
    except (ValueError, TypeError, crypto.UnsupportedAlgorithm) as error:
        # The text of the error is not shown: it may quote the file.
        reason = "is no private key in PEM form, or its password is missing or wrong"
        raise UsageError(reason, file=_name(key), hint=_HINT) from error
    if not isinstance(found, crypto.ec.EllipticCurvePrivateKey):
        raise UsageError("is no elliptic-curve key", file=_name(key), hint=_HINT)
    _check_curve(found.curve.name, key)
    return cast("EllipticCurvePrivateKey", found)


def read_public_key(key: Key) -> EllipticCurvePublicKey:
    """Read a public key. Errors are those of :func:`read_private_key`."""
    crypto = _cryptography()
    try:
        found = crypto.serialization.load_pem_public_key(_pem(key))
    except (ValueError, crypto.UnsupportedAlgorithm) as error:
        raise UsageError("is no public key in PEM form", file=_name(key), hint=_HINT_PUBLIC) from error
    if not isinstance(found, crypto.ec.EllipticCurvePublicKey):
        raise UsageError("is no elliptic-curve key", file=_name(key), hint=_HINT)
    _check_curve(found.curve.name, key)
    return cast("EllipticCurvePublicKey", found)


_HINT = "openssl ecparam -genkey -name prime256v1 -noout -out key.pem"
_HINT_PUBLIC = "openssl ec -in key.pem -pubout -out key.pub"


def key_id(key: EllipticCurvePublicKey) -> str:
    """Return the identifier of a public key in a bundle: SHA-256 of its PEM form, in hexadecimal digits."""
    forms = _cryptography().serialization
    pem: bytes = key.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(pem).hexdigest()


def sign_bytes(key: EllipticCurvePrivateKey, content: bytes) -> bytes:
    """Sign bytes by ECDSA. The signature is deterministic (RFC 6979): equal bytes and keys give equal signatures.

    Raises:
        MissingExtraError: the installed OpenSSL is older than 3.2 and cannot do that.

    """
    crypto = _cryptography()
    try:
        signed: bytes = key.sign(content, crypto.ec.ECDSA(_hash(key.curve.name), deterministic_signing=True))
    except crypto.UnsupportedAlgorithm as error:
        raise MissingExtraError("signing needs OpenSSL 3.2", hint="pip install 'tpuconvert[signing]'") from error
    return signed


def verify_bytes(key: EllipticCurvePublicKey, signature: bytes, content: bytes) -> None:
    """Verify a signature.

    Raises:
        SignatureError: it was not made with the private key for these bytes.

    """
    crypto = _cryptography()
    try:
        key.verify(signature, content, crypto.ec.ECDSA(_hash(key.curve.name)))
    except crypto.InvalidSignature as error:
        raise SignatureError("the signature was not made with this key, or the signed list was changed") from error


class _Cryptography:
    """The parts of ``cryptography`` that are used."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        self.InvalidSignature = InvalidSignature
        self.UnsupportedAlgorithm = UnsupportedAlgorithm
        self.hashes = hashes
        self.serialization = serialization
        self.ec = ec


def _cryptography() -> Any:
    try:
        return _Cryptography()
    except ImportError as error:
        hint = "pip install 'tpuconvert[signing]'"
        raise MissingExtraError("signatures need the package cryptography", hint=hint) from error


def _hash(curve: str) -> Any:
    return getattr(_cryptography().hashes, _HASHES[curve])()


def _check_curve(curve: str, key: Key) -> None:
    if curve not in _HASHES:
        raise UsageError(f"is a key on the curve {curve}, expected {' or '.join(_HASHES)}", file=_name(key), hint=_HINT)


def _pem(key: Key) -> bytes:
    if isinstance(key, bytes):
        return key
    try:
        return read_bounded(key)
    except FileNotFoundError:
        raise absent_file(key) from None
    except (OSError, ValueError) as error:  # also a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {reason}", file=os.fspath(key)) from error


def _name(key: Key) -> str:
    return "the given key" if isinstance(key, bytes) else os.fspath(key)
