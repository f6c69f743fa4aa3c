"""Signatures of models: round trips, every kind of change, malformed bundles, OpenSSF Model Signing as the oracle."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tpuconvert as tc
from tpuconvert.__main__ import main
from tpuconvert.signing.bundle import parse_bundle
from tpuconvert.signing.model_files import GIT_PATHS

pytest.importorskip("cryptography", reason="extra signing")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

Captured = pytest.CaptureFixture[str]
PEM = serialization.Encoding.PEM


def write_keys(name: str, curve: ec.EllipticCurve, password: bytes = b"") -> None:
    """Write ``NAME.pem`` and ``NAME.pub``."""
    key = ec.generate_private_key(curve)
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    Path(f"{name}.pem").write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, locked))
    public = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    Path(f"{name}.pub").write_bytes(public)


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pair of keys ``key``, another pair ``other``, the file ``net.tpum`` and the folder ``model``."""
    monkeypatch.chdir(tmp_path)
    write_keys("key", ec.SECP256R1())
    write_keys("other", ec.SECP256R1())
    Path("net.tpum").write_bytes(b"weights" * 1000)
    for name, content in {
        "b.bin": b"b",
        "a/z.bin": b"z",
        "a-b/c.bin": b"c",
        "empty": b"",
        "a/naïve name.txt": b"name",
        ".git/config": b"no part of the model",
        ".gitignore": b"*.tmp",
    }.items():
        Path("model", name).parent.mkdir(parents=True, exist_ok=True)
        Path("model", name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("model", ["net.tpum", "model", "model/", "./model/."])
def test_a_signed_model_verifies(keys: Path, model: str, capsys: Captured) -> None:
    assert main(["sign", model, "--key", "key.pem", "-o", "m.sig"]) == 0
    assert main(["verify-signature", model, "--key", "key.pub", "--signature", "m.sig", "--json"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    names = [item["name"] for item in told["files"]]
    assert names == (["."] if model == "net.tpum" else ["a/naïve name.txt", "a/z.bin", "a-b/c.bin", "b.bin", "empty"])
    assert told["verified"] is True


def test_default_names_and_equal_bytes(keys: Path) -> None:
    first = tc.sign("net.tpum", key="key.pem")
    assert first.signature == "net.tpum.sig"
    content = Path("net.tpum.sig").read_bytes()
    tc.sign("net.tpum", key=Path("key.pem").read_bytes())
    assert Path("net.tpum.sig").read_bytes() == content
    assert tc.verify_signature("net.tpum", key=Path("key.pub").read_bytes()).files == first.files


def change(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[-1] ^= 1
    Path(path).write_bytes(content)


def replace_by_link(path: str) -> None:
    Path(path).rename("moved")
    Path(path).symlink_to(Path("moved").absolute())


CHANGES: dict[str, tuple[Callable[[], object], type[tc.TpuConvertError], str]] = {
    "changed": (lambda: change("model/b.bin"), tc.SignatureError, r"changed: 'b\.bin'$"),
    "missing": (lambda: Path("model/a/z.bin").unlink(), tc.SignatureError, r"missing: 'a/z\.bin'$"),
    "added": (lambda: Path("model/new").write_bytes(b""), tc.SignatureError, r"not signed: 'new'$"),
    "renamed": (
        lambda: Path("model/b.bin").rename("model/c.bin"),
        tc.SignatureError,
        r"missing: 'b\.bin'; not signed: 'c\.bin'$",
    ),
    "link": (lambda: replace_by_link("model/b.bin"), tc.UsageError, "is a symbolic link"),
    "pipe": (lambda: os.mkfifo("model/pipe"), tc.UsageError, "is a pipe or a device"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_is_detected(keys: Path, kind: str) -> None:
    tc.sign("model", key="key.pem")
    apply, error, message = CHANGES[kind]
    apply()
    with pytest.raises(error, match=message):
        tc.verify_signature("model", key="key.pub")


def test_git_files_and_ignored_paths_are_not_signed(keys: Path) -> None:
    Path("model/logs").mkdir()
    Path("model/logs/1").write_text("first")
    tc.sign("model", key="key.pem", ignore=["logs"], output="model/model.sig")
    Path("model/logs/2").write_text("second")
    Path("model/.gitignore").write_text("changed")
    tc.verify_signature("model", key="key.pub", signature="model/model.sig")
    with pytest.raises(tc.UsageError, match=r"the ignored path '\.\./net\.tpum' is not in the model"):
        tc.sign("model", key="key.pem", ignore=["../net.tpum"])
    with pytest.raises(tc.UsageError, match=r"the ignored path '\.' is not in the model"):
        tc.sign("model", key="key.pem", ignore=["."])


def test_files_that_are_not_signed_can_be_allowed(keys: Path) -> None:
    tc.sign("model", key="key.pem")
    Path("model/new").write_bytes(b"")
    tc.verify_signature("model", key="key.pub", ignore_unsigned=True)
    change("model/b.bin")
    with pytest.raises(tc.SignatureError, match="changed"):
        tc.verify_signature("model", key="key.pub", ignore_unsigned=True)


def test_links_to_files_can_be_followed_and_links_to_folders_never(keys: Path) -> None:
    Path("model/link").symlink_to("b.bin")
    with pytest.raises(tc.UsageError, match="symbolic link"):
        tc.sign("model", key="key.pem")
    assert "link" in tc.sign("model", key="key.pem", allow_symlinks=True).files
    tc.verify_signature("model", key="key.pub")
    Path("model/folder").symlink_to("a")
    with pytest.raises(tc.UsageError, match="symbolic link"):
        tc.sign("model", key="key.pem", allow_symlinks=True)


def test_another_key_is_refused_with_and_without_its_identifier(keys: Path) -> None:
    tc.sign("net.tpum", key="key.pem")
    with pytest.raises(tc.SignatureError, match="made with another key"):
        tc.verify_signature("net.tpum", key="other.pub")
    content = json.loads(Path("net.tpum.sig").read_text())
    del content["verificationMaterial"]["publicKey"]["hint"]
    Path("net.tpum.sig").write_text(json.dumps(content))
    tc.verify_signature("net.tpum", key="key.pub")
    with pytest.raises(tc.SignatureError, match="not made with this key"):
        tc.verify_signature("net.tpum", key="other.pub")


def test_every_changed_character_of_payload_and_signature_is_detected(keys: Path) -> None:
    tc.sign("net.tpum", key="key.pem")
    content = json.loads(Path("net.tpum.sig").read_text())
    envelope = content["dsseEnvelope"]
    for place, name in ((envelope, "payload"), (envelope["signatures"][0], "sig")):
        whole = base64.b64decode(place[name])
        for index in range(len(whole)):
            changed = whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :]
            place[name] = base64.b64encode(changed).decode()
            Path("net.tpum.sig").write_text(json.dumps(content))
            with pytest.raises(tc.SignatureError, match="not made with this key"):
                tc.verify_signature("net.tpum", key="key.pub")
        place[name] = base64.b64encode(whole).decode()


def signed_with(statement: Any, key: str = "key.pem") -> None:
    """Write a bundle of any payload with a valid signature."""
    from tpuconvert.signing import bundle, keys

    private = keys.read_private_key(key)
    payload = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
    signature = keys.sign_bytes(private, bundle.signed_bytes(payload))
    made = bundle.Bundle(payload, signature, keys.key_id(private.public_key()))
    Path("net.tpum.sig").write_text(made.to_json())


SHARDS = {"method": "shards", "hash_type": "sha256", "allow_symlinks": False}


def edits() -> list[tuple[str, Any]]:
    """Path in the statement, and a wrong value."""
    return [
        ("_type", "https://in-toto.io/Statement/v0.1"),
        ("predicateType", "https://model_signing/Digests/v0.1"),
        ("subject", []),
        ("subject", None),
        ("subject/0/name", 3),
        ("subject/0/digest", {}),
        ("subject/0/digest/sha256", "00"),
        ("predicate", []),
        ("predicate/serialization", None),
        ("predicate/serialization/method", "folders"),
        ("predicate/serialization/method", "shards"),
        ("predicate/serialization/hash_type", "md5"),
        ("predicate/serialization/hash_type", ["sha256"]),
        ("predicate/serialization", {**SHARDS, "shard_size": 0}),
        ("predicate/serialization", {**SHARDS, "shard_size": 0.5}),
        ("predicate/serialization/allow_symlinks", "no"),
        ("predicate/serialization/ignore_paths", [1]),
        ("predicate/resources", []),
        ("predicate/resources", {}),
        ("predicate/resources/0", "."),
        ("predicate/resources/0/digest", "zz"),
        ("predicate/resources/0/digest", 0),
        ("predicate/resources/0/algorithm", "sha1"),
    ]


@pytest.mark.parametrize(("place", "value"), edits(), ids=lambda item: ascii(item))
def test_signed_statements_that_are_malformed_are_refused(keys: Path, place: str, value: Any) -> None:
    tc.sign("net.tpum", key="key.pem")
    statement = json.loads(parse_bundle(Path("net.tpum.sig").read_text()).payload)
    *outer, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    part = statement
    for step in outer:
        part = part[step]
    part[last] = value
    signed_with(statement)
    with pytest.raises(tc.CorruptInputError) as caught:
        tc.verify_signature("net.tpum", key="key.pub")
    assert not isinstance(caught.value, tc.SignatureError)


def test_a_file_that_is_listed_twice_is_refused(keys: Path) -> None:
    tc.sign("net.tpum", key="key.pem")
    statement = json.loads(parse_bundle(Path("net.tpum.sig").read_text()).payload)
    statement["predicate"]["resources"] *= 2
    signed_with(statement)
    with pytest.raises(tc.CorruptInputError, match="twice"):
        tc.verify_signature("net.tpum", key="key.pub")


@pytest.mark.parametrize("payload", [b"\xff", b"[]", b"{", b"[" * 100_000, b"{}"])
def test_signed_payloads_that_are_no_statement_are_refused(keys: Path, payload: bytes) -> None:
    signed_with(payload)
    with pytest.raises(tc.CorruptInputError):
        tc.verify_signature("net.tpum", key="key.pub")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("mediaType", "application/json", "the media type is"),
        ("verificationMaterial", [], "'verificationMaterial' is a list"),
        ("verificationMaterial", {"certificate": {}}, "signed with certificate, expected a public key"),
        ("verificationMaterial/publicKey", "x", "'publicKey' is a str"),
        ("verificationMaterial/publicKey/hint", 3, "expected 1 with a key"),
        ("dsseEnvelope", None, "'dsseEnvelope' is a NoneType"),
        ("dsseEnvelope/payloadType", "text/plain", "the payload type is"),
        ("dsseEnvelope/payload", 1, "'payload' is a int"),
        ("dsseEnvelope/payload", "~~", "not base64"),
        ("dsseEnvelope/payload", "\u00e9", "not base64"),
        ("dsseEnvelope/signatures", [], "the bundle has 0 signatures"),
        ("dsseEnvelope/signatures", [1], "the bundle has 1 signatures"),
        ("dsseEnvelope/signatures/0/sig", None, "'sig' is a NoneType"),
    ],
)
def test_malformed_bundles_are_refused(keys: Path, place: str, value: Any, message: str) -> None:
    tc.sign("net.tpum", key="key.pem")
    content = json.loads(Path("net.tpum.sig").read_text())
    *outer, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    part = content
    for step in outer:
        part = part[step]
    part[last] = value
    Path("net.tpum.sig").write_text(json.dumps(content))
    with pytest.raises(tc.CorruptInputError, match=message):
        tc.verify_signature("net.tpum", key="key.pub")


def test_files_that_are_no_bundle_are_refused(keys: Path) -> None:
    for content in (b"", b"\xff\xfe", b"null", b"[" * 100_000, Path("key.pub").read_bytes()):
        Path("net.tpum.sig").write_bytes(content)
        with pytest.raises(tc.CorruptInputError):
            tc.verify_signature("net.tpum", key="key.pub")


def test_keys_that_are_not_usable(keys: Path, capsys: Captured) -> None:
    write_keys("locked", ec.SECP256R1(), b"secret")
    write_keys("bitcoin", ec.SECP256K1())
    edwards = ed25519.Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    Path("edwards.pem").write_bytes(edwards.private_bytes(PEM, *form))
    Path("damaged.pem").write_bytes(Path("key.pem").read_bytes()[:100])
    Path("wrong.txt").write_text("guess\n")
    Path("right.txt").write_text("secret\n")
    for name in ("locked.pem", "bitcoin.pem", "edwards.pem", "damaged.pem", "key.pub", "absent.pem", "."):
        assert main(["sign", "net.tpum", "--key", name]) == 2, name
    assert main(["sign", "net.tpum", "--key", "locked.pem", "--password-file", "wrong.txt"]) == 2
    assert not Path("net.tpum.sig").exists()
    assert Path("key.pem").read_text().splitlines()[1] not in capsys.readouterr().err
    assert main(["sign", "net.tpum", "--key", "locked.pem", "--password-file", "right.txt"]) == 0
    assert main(["verify-signature", "net.tpum", "--key", "locked.pub"]) == 0
    for name in ("bitcoin.pub", "key.pem", "net.tpum", "absent.pub"):
        assert main(["verify-signature", "net.tpum", "--key", name]) == 2, name


def test_nothing_to_sign(keys: Path) -> None:
    Path("void").mkdir()
    with pytest.raises(tc.UsageError, match="no file to sign"):
        tc.sign("void", key="key.pem")
    assert main(["sign", "absent", "--key", "key.pem"]) == 2
    with pytest.raises(tc.UsageError, match="would be replaced"):
        tc.sign("net.tpum", key="key.pem", output="net.tpum")


def test_names_that_are_no_text_are_refused(keys: Path) -> None:
    Path(os.fsdecode(b"model/\xff")).write_bytes(b"")
    with pytest.raises(tc.UsageError, match="not UTF-8"):
        tc.sign("model", key="key.pem")


CURVES: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("model", ["net.tpum", "model"])
def test_model_signing_verifies_our_signatures(keys: Path, curve: str, model: str) -> None:
    pytest.importorskip("model_signing", reason="oracle")
    from model_signing import verifying

    write_keys("key", CURVES[curve])
    tc.sign(model, key="key.pem", output="m.sig")
    verifying.Config().use_elliptic_key_verifier(public_key="key.pub").verify(model, "m.sig")
    change("net.tpum" if model == "net.tpum" else "model/a/z.bin")
    with pytest.raises(ValueError, match="mismatch"):
        verifying.Config().use_elliptic_key_verifier(public_key="key.pub").verify(model, "m.sig")


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("model", ["net.tpum", "model"])
@pytest.mark.parametrize("form", ["files", "blake2 files", "shards", "blake2 shards"])
def test_signatures_of_model_signing_verify(keys: Path, curve: str, model: str, form: str) -> None:
    pytest.importorskip("model_signing", reason="oracle")
    from model_signing import hashing, signing

    write_keys("key", CURVES[curve])
    algorithm: Any = "blake2" if "blake2" in form else "sha256"
    how = hashing.Config()
    if "shards" in form:
        how.use_shard_serialization(hashing_algorithm=algorithm, shard_size=1000)
    else:
        how.use_file_serialization(hashing_algorithm=algorithm)
    signer = signing.Config().use_elliptic_key_signer(private_key="key.pem").set_hashing_config(how)
    signer.sign(model, "m.sig")
    found = tc.verify_signature(model, key="key.pub", signature="m.sig")
    assert len(found.files) == ({"net.tpum": 1, "model": 5} if "files" in form else {"net.tpum": 7, "model": 4})[model]
    tc.verify_signature(model, key="key.pub", signature="m.sig", ignore_unsigned=True)
    change("net.tpum" if model == "net.tpum" else "model/a/z.bin")
    with pytest.raises(tc.SignatureError, match="changed"):
        tc.verify_signature(model, key="key.pub", signature="m.sig")


@pytest.mark.parametrize("model", ["net.tpum", "model"])
def test_both_programs_sign_the_same_statement(keys: Path, model: str) -> None:
    pytest.importorskip("model_signing", reason="oracle")
    from model_signing import signing

    tc.sign(model, key="key.pem", output="ours.sig")
    signing.Config().use_elliptic_key_signer(private_key="key.pem").sign(model, "theirs.sig")
    ours, theirs = (json.loads(parse_bundle(Path(f"{who}.sig").read_text()).payload) for who in ("ours", "theirs"))
    for statement in (ours, theirs):  # of one file they list ignored paths too, in an order that changes
        ignored = statement["predicate"]["serialization"].pop("ignore_paths", [])
        assert set(ignored) <= set(GIT_PATHS)
    assert ours == theirs


def test_examples_of_the_page_run(keys: Path, repository: Path) -> None:
    """Examples that need an extra are marked ``sh``; ``tests/test_documentation.py`` does not run them."""
    text = (repository / "docs" / "signing.md").read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert script.count("tpuconvert sign") == 2
    Path("examples").symlink_to(repository / "examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def reproducible(keys: Path, repository: Path) -> list[str]:
    """Arguments of ``reproduce`` for a converted model."""
    digits = repository / "examples" / "digits"
    tc.convert(digits / "digits.onnx").save("digits.tpum")
    return [str(digits / "digits.onnx"), "digits.tpum"]


def test_statement_of_a_reproduction(reproducible: list[str]) -> None:
    assert main(["reproduce", *reproducible, "--statement", "s.json"]) == 0
    statement = json.loads(Path("s.json").read_text())
    digest = hashlib.sha256(Path("digits.tpum").read_bytes()).hexdigest()
    assert statement["subject"] == [{"name": "digits.tpum", "digest": {"sha256": digest}}]
    [source] = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    content = Path(reproducible[0]).read_bytes()
    assert source == {
        "name": "digits.onnx",
        "digest": {"sha256": hashlib.sha256(content).hexdigest()},
        "annotations": {"role": "source"},
    }
    assert statement["predicate"]["runDetails"]["builder"]["version"]["tpuconvert"] == tc.__version__
    first = Path("s.json").read_bytes()
    assert str(Path.cwd()).encode() not in first
    assert main(["reproduce", *reproducible, "--statement", "again.json"]) == 0
    assert Path("again.json").read_bytes() == first


def test_statement_is_one_for_in_toto(reproducible: list[str]) -> None:
    pytest.importorskip("in_toto_attestation", reason="oracle")
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement, statement_pb2

    assert main(["reproduce", *reproducible, "--statement", "s.json"]) == 0
    message = json_format.Parse(Path("s.json").read_text(), statement_pb2.Statement())
    statement.Statement.copy_from_pb(message).validate()


def test_signed_statement_is_verified(reproducible: list[str], capsys: Captured) -> None:
    assert main(["reproduce", *reproducible, "--statement", "s.sig", "--key", "key.pem"]) == 0
    call = ["verify-signature", "digits.tpum", "--signature", "s.sig", "--key"]
    assert main([*call, "key.pub"]) == 0
    assert main([*call, "other.pub"]) == 4
    change("digits.tpum")
    assert main([*call, "key.pub"]) == 4
    assert "changed: '.'" in capsys.readouterr().err


def test_no_statement_about_other_bytes(reproducible: list[str], capsys: Captured) -> None:
    model = tc.load("digits.tpum")
    model.metadata["recipe"]["options"]["local_memory"] = "64x256K"
    model.save("changed.tpum")
    assert main(["reproduce", reproducible[0], "changed.tpum", "--statement", "s.json"]) == 5
    assert not Path("s.json").exists()
    assert main(["reproduce", *reproducible, "--key", "key.pem"]) == 2
    assert main(["reproduce", *reproducible, "--statement", "s.json", "--key", "key.pub"]) == 2
    assert main(["reproduce", *reproducible, "--statement", reproducible[1]]) == 2
    assert "no private key" in capsys.readouterr().err


@pytest.mark.parametrize("subject", [None, [], [{}], [{"name": 1, "digest": {"sha256": "00"}}], [{"name": "x"}]])
def test_malformed_statements_of_provenance_are_refused(keys: Path, subject: Any) -> None:
    from tpuconvert.signing.statement import PROVENANCE_TYPE, STATEMENT_TYPE

    signed_with({"_type": STATEMENT_TYPE, "predicateType": PROVENANCE_TYPE, "subject": subject, "predicate": {}})
    with pytest.raises(tc.CorruptInputError) as caught:
        tc.verify_signature("net.tpum", key="key.pub")
    assert not isinstance(caught.value, tc.SignatureError)
