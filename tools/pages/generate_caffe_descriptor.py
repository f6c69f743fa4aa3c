"""Generate frontends/caffe/file/caffe_descriptor.desc from frontends/caffe/file/caffe.proto.

    pip install grpcio-tools
    python -m tools.pages.generate_caffe_descriptor            write the file
    python -m tools.pages.generate_caffe_descriptor --check    only check that it is up to date (exit code 1 otherwise)

The result is a serialized FileDescriptorSet with two entries: the description itself, and an empty one whose name holds
the SHA-256 of its source text, so that a test without the compiler detects a changed text.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools.pages.generated_file import write_or_check

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "frontends" / "caffe" / "file" / "caffe.proto"
DESCRIPTOR = ROOT / "frontends" / "caffe" / "file" / "caffe_descriptor.desc"


def digest_entry(text: bytes) -> str:
    """Return the name of the second entry for a .proto text. Line endings are ignored: a checkout may change them."""
    return "sha256/" + hashlib.sha256(text.replace(b"\r\n", b"\n")).hexdigest()


def compile_proto() -> bytes:
    """Compile the .proto file. Return the content of the descriptor file.

    Raises:
        SystemExit: the compiler is missing or reports an error.

    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.desc"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={target}"]
        run = subprocess.run([*command, PROTO.name], capture_output=True, text=True)
        if run.returncode:
            hint = "\npip install grpcio-tools" if "No module named" in run.stderr else ""
            raise SystemExit(run.stderr.strip() + hint)
        files = FileDescriptorSet.FromString(target.read_bytes())
    files.file.add(name=digest_entry(PROTO.read_bytes()))
    return files.SerializeToString(deterministic=True)


def main() -> int:
    """Write or check the descriptor file."""
    description = (__doc__ or "").splitlines()[0]
    return write_or_check(
        DESCRIPTOR, compile_proto, tool="tools.pages.generate_caffe_descriptor", description=description
    )


if __name__ == "__main__":
    sys.exit(main())
