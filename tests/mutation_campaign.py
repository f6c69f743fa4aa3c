"""Mutation campaigns: damage valid files of every format at random, and read, convert and run what is left.

    python tests/mutation_campaign.py --formats "onnx bytes,tpum bytes; valid digest" --count 20000

Formats "... cut" are every beginning of three small files instead, and "tpum single bits" one flipped bit per case; for
the former ``--count`` is at most the number of bytes. A damaged program without a valid digest must be refused.

Every case runs in a worker process. A case fails if the worker dies, if an error is no documented one, if it takes
more than ``MOST_SECONDS`` of CPU time, or if the process needs more than ``MOST_BYTES`` above its start. A worker that
hangs is ended after four times that CPU time, or after ten minutes without an answer. The command prints a row per
format and the seeds of cases that fail; ``--only SEED`` repeats one of them. ``--first`` and ``--count`` choose a part
of a campaign: of the rows of all parts, add up the numbers of files, and take the largest seconds and MiB.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import small_files
import yaml
from google.protobuf import text_format
from google.protobuf.message import Message

import tpuconvert as tc
from tpuconvert.ci.manifest import read_manifest
from tpuconvert.quantize.ranges_file import read_ranges
from tpuconvert.samples.array_files import load_arrays
from tpuconvert.schema import tpum_tables as tpum
from tpuconvert.schema.file_header import HEADER_SIZE, Header

DIGITS = Path(tc.__file__).parents[1] / "examples" / "digits"

MOST_SECONDS = 10.0
MOST_BYTES = 512 << 20
_MOST_ELEMENTS = 1 << 20  # of an input of a mutated model: the campaign tests readers, not the speed of large models

NUMBERS = [0, 1, -1, 2, 7, 64, 127, 128, 255, 256, 32767, 65535, 1 << 20]
NUMBERS += [(1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63)]
REALS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 1e308, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "x", "\0", "\n", "..", "/", "a" * 5000, "\u202e", "💥", "%s%n", "input", "conv1"]


# Mutations


def damage_bytes(content: bytes, chance: random.Random) -> bytes:
    """Change, remove, repeat or insert a few bytes, or cut the end off."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        place = chance.randrange(len(found) + 1)
        size = min(chance.choice((1, 1, 2, 4, 8, 64, 1024)), len(found) - place)
        kind = chance.randrange(7)
        if kind == 0 and size:
            found[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[place : place + size] = chance.randbytes(size)
        elif kind == 2:
            del found[place : place + size]
        elif kind == 3:
            found[place:place] = found[place : place + size]
        elif kind == 4:
            number = chance.choice(NUMBERS) & ((1 << 64) - 1)
            width = chance.choice((1, 2, 4, 8))
            part = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            found[place : place + width] = part
        elif kind == 5:
            other = chance.randrange(len(found) + 1)
            found[place : place + size] = found[other : other + size]
        elif chance.random() < 0.2:
            del found[place:]
        if not found:
            break
    return bytes(found)


def change_value(value: Any, chance: random.Random) -> Any:
    """Return another value, mostly of the same type."""
    if chance.random() < 0.1:
        return chance.choice([None, True, "x", 1.5, [], {}, 1 << 70])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, -value, value * 2, *NUMBERS])
    if isinstance(value, float):
        return chance.choice([value * 1e6, -value, *REALS])
    if isinstance(value, str):
        return chance.choice([value[:-1], value + value, *TEXTS])
    if isinstance(value, bytes):
        return damage_bytes(value, chance) if value else b"x"
    return None


def change_tree(tree: Any, chance: random.Random) -> Any:
    """Change one place of nested lists, dictionaries and named tuples."""
    if isinstance(tree, dict) and tree and chance.random() < 0.95:
        key = chance.choice(list(tree))
        kind = chance.random()
        if kind < 0.05:
            return {name: value for name, value in tree.items() if name != key}
        if kind < 0.1:
            return {chance.choice(TEXTS) if name == key else name: value for name, value in tree.items()}
        return {name: change_tree(value, chance) if name == key else value for name, value in tree.items()}
    if isinstance(tree, (list, tuple)) and tree and chance.random() < 0.95:
        if hasattr(tree, "_fields"):
            place = chance.choice(tree._fields)
            return tree._replace(**{place: change_tree(getattr(tree, place), chance)})
        items, place = list(tree), chance.randrange(len(tree))
        kind = chance.random()
        if kind < 0.05:
            del items[place]
        elif kind < 0.1:
            items.insert(place, chance.choice(items))
        elif kind < 0.15:
            other = chance.randrange(len(items))
            items[place], items[other] = items[other], items[place]
        else:
            items[place] = change_tree(items[place], chance)
        return type(tree)(items)
    return change_value(tree, chance)


def change_message(message: Message, chance: random.Random) -> None:
    """Change one field of a protobuf message or of a message in it."""
    present = message.ListFields()
    if not present:
        return
    description, value = chance.choice(present)
    repeated = not isinstance(value, (int, float, str, bytes, bool, Message))
    try:
        if not repeated and isinstance(value, Message):
            change_message(value, chance)
        elif not repeated:
            setattr(message, description.name, change_value(value, chance))
        elif description.message_type is not None and chance.random() < 0.8:
            change_message(chance.choice(value), chance)
        elif chance.random() < 0.3:
            del value[chance.randrange(len(value))]
        elif description.message_type is not None:
            value.add().CopyFrom(chance.choice(value))
        else:
            value[chance.randrange(len(value))] = change_value(chance.choice(value), chance)
    except (TypeError, ValueError, AttributeError, OverflowError):
        message.ClearField(description.name)  # the value does not fit the type of the field


# Formats


_STEP = 7919  # a prime that is no divisor of a number of bytes: the first cases are spread over all files


@dataclass(frozen=True)
class Format:
    """A kind of file: how valid content is made and damaged, and what is done with a damaged file."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, random.Random], bytes]
    use: Callable[[Path], None]
    is_detected: bool = False  # True if every damage must be refused
    is_cut: bool = False  # True if the cases are the beginnings of all seeds

    def case(self, contents: Sequence[bytes], name: str, seed: int) -> bytes:
        """Return the damaged content of a case. Cases of a cut format are numbered through all files."""
        if not self.is_cut:
            chance = random.Random(f"{name} {seed}")
            return self.mutate(chance.choice(contents), chance)
        place = seed * _STEP % sum(map(len, contents))
        for content in contents:
            if place < len(content):
                return content[:place]
            place -= len(content)
        raise AssertionError("a place is inside of a file")

    def most_cases(self, count: int) -> int:
        """Number of cases, of which a campaign tries at most ``count``."""
        return min(count, sum(map(len, self.seeds()))) if self.is_cut else count


def _file(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(DIGITS / name).read_bytes()]


def _run(model: tc.Model) -> None:
    """Run a model on random inputs, if they are not too large."""
    chance = np.random.default_rng(0)
    with tc.Session(model) as session:
        feeds = {}
        for info in session.inputs:
            shape = tuple(extent if isinstance(extent, int) else 2 for extent in info.shape)
            if int(np.prod([float(extent) for extent in shape])) > _MOST_ELEMENTS:
                return
            feeds[info.name] = chance.integers(0, 2, shape).astype(info.dtype)
        session.run(feeds)


def _convert(path: Path) -> None:
    _run(tc.convert(path))


def _convert_prototxt(path: Path) -> None:
    _run(tc.convert(path, DIGITS / "digits.caffemodel"))


def _convert_weights(path: Path) -> None:
    _run(tc.convert(DIGITS / "digits.prototxt", path))


def _convert_small_weights(path: Path) -> None:
    prototxt = path.with_suffix(".prototxt")
    prototxt.write_text(small_files.PROTOTXT)
    _run(tc.convert(prototxt, path))


def _read_manifest(path: Path) -> None:
    read_manifest(path)


def _read_ranges(path: Path) -> None:
    read_ranges(path)


def _read_arrays(path: Path) -> None:
    load_arrays(path)


def _load(path: Path) -> None:
    model = tc.load(path)
    tc.inspect(model).to_dict()
    _run(model)


def _quantized() -> tc.Model:
    return tc.convert(DIGITS / "digits.onnx", quantize="int8", calibration=_samples())


def _samples() -> np.ndarray:
    images = load_arrays(DIGITS / "calibration.npz")["images"][:8, None]
    return images.astype(np.float32) / 255


def _programs() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tpum"
        models = []
        for model in (tc.convert(DIGITS / "digits.onnx"), _quantized()):
            model.save(path)
            models.append(path.read_bytes())
        return models


def _sign(content: bytes) -> bytes:
    """Correct the digest of a damaged program, so that the checks behind it see it."""
    import xxhash

    digest = xxhash.xxh3_128(content[HEADER_SIZE:]).digest()
    return content[:56] + b"xxh3-128" + digest + content[80:]


def _damage_signed(content: bytes, chance: random.Random) -> bytes:
    damaged = damage_bytes(content, chance)
    return _sign(damaged) if len(damaged) > HEADER_SIZE else damaged


def _change_program(content: bytes, chance: random.Random) -> bytes:
    """Change fields of the description of a program, and write a valid header and digest."""
    header = Header.unpack(content[:HEADER_SIZE], len(content))
    start = header.metadata_offset
    tables: Any = tpum.unpack(memoryview(content)[start : start + header.metadata_size])
    for _ in range(chance.choice((1, 1, 2, 3))):
        tables = change_tree(tables, chance)
    try:
        metadata = tpum.pack(tables)
    except Exception:  # the value does not fit the type of the field
        return content
    size = len(metadata)
    metadata += bytes(-size % 64)
    sizes = (size).to_bytes(8, "little")
    changed = content[:start] + metadata
    # header: magic, version, header size, file size, offset and size of the metadata, offset and size of the weights
    changed = changed[:16] + len(changed).to_bytes(8, "little") + changed[24:32] + sizes + changed[40:]
    return _sign(changed)


def _change_onnx(content: bytes, chance: random.Random) -> bytes:
    import onnx

    message = onnx.ModelProto.FromString(content)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        change_message(message, chance)
    return message.SerializeToString()


def _network() -> Any:
    from tpuconvert.frontends.caffe.messages import new_message

    return new_message("NetParameter")


def _change_weights(content: bytes, chance: random.Random) -> bytes:
    message = _network()
    message.ParseFromString(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        change_message(message, chance)
    found: bytes = message.SerializePartialToString()
    return found


def _change_prototxt(content: bytes, chance: random.Random) -> bytes:
    message = _network()
    text_format.Parse(content.decode(), message)
    for _ in range(chance.choice((1, 1, 2, 3))):
        change_message(message, chance)
    return text_format.MessageToString(message).encode()


def _change_flatbuffer(content: bytes, chance: random.Random) -> bytes:
    """Change aligned 32-bit words: offsets, sizes and scalars of the tables, not the weights."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(found) // 4) * 4
        word = int.from_bytes(found[place : place + 4], "little")
        word = chance.choice([word + 4, word - 4, word + 1, word * 2, *NUMBERS]) & 0xFFFFFFFF
        found[place : place + 4] = word.to_bytes(4, "little")
    return bytes(found)


def _ranges() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        tc.calibrate(DIGITS / "digits.onnx", calibration=_samples()).save(path)
        return [path.read_bytes()]


def _quantize(path: Path) -> None:
    read_ranges(path)
    tc.quantize(DIGITS / "digits.onnx", ranges=path)


def _change_json(content: bytes, chance: random.Random) -> bytes:
    tree = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = change_tree(tree, chance)
    return json.dumps(tree).encode()


def _change_yaml(content: bytes, chance: random.Random) -> bytes:
    tree = yaml.safe_load(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        tree = change_tree(tree, chance)
    return yaml.safe_dump(tree).encode()


MANIFEST = f"""
defaults: {{chip: bm1686, samples: 2, limits: {{cosine: 0.9}}}}
models:
  a: {{source: {DIGITS}/digits.onnx, limits: {{size: 1 MB, transposes: 3}}, quantize: int8}}
  b: {{source: {DIGITS}/digits.prototxt, weights: {DIGITS}/digits.caffemodel, effort: low, quantize: int8}}
"""

PREPROCESS = "preprocess: {scale: [0.1, 0.2, 0.3], mean: [1, 2, 3], color: bgr, fit: crop, size: [24, 24]}\n"


def _arrays() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    arrays = {"x": np.arange(600.0).reshape(2, 300), "y": np.zeros((3, 4), np.int8)}
    np.savez(plain, **arrays)
    np.savez_compressed(packed, **arrays)
    return [plain.getvalue(), packed.getvalue()]


def _change_arrays(content: bytes, chance: random.Random) -> bytes:
    """Change the header or the data of a member, and write a valid archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            member = source.read(name)
            head = damage_bytes(member[:128], chance) if chance.random() < 0.7 else member[:128]
            target.writestr(name, head + member[128:])
    return made.getvalue()


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"):
        made = io.BytesIO()
        Image.fromarray(pixels).save(made, kind)
        found.append(made.getvalue())
    return found


def _decode(path: Path) -> None:
    from tpuconvert.samples.image_files import open_image

    with open_image(path) as image:
        np.asarray(image.convert("RGB"))


def _read_preprocess(path: Path) -> None:
    from tpuconvert.options import Options

    Options.of(preprocess=str(path))


def _flip_bit(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(8 * len(content))
    found = bytearray(content)
    found[place // 8] ^= 1 << place % 8
    return bytes(found)


def _cut(suffix: str, seeds: Callable[[], list[bytes]], use: Callable[[Path], None], **others: bool) -> Format:
    return Format(suffix, seeds, lambda content, _: content, use, is_cut=True, **others)


FORMATS: dict[str, Format] = {
    "onnx bytes": Format(".onnx", _file("digits.onnx"), damage_bytes, _convert),
    "onnx fields": Format(".onnx", _file("digits.onnx"), _change_onnx, _convert),
    "tflite bytes": Format(".tflite", _file("digits.tflite"), damage_bytes, _convert),
    "tflite fields": Format(".tflite", _file("digits.tflite"), _change_flatbuffer, _convert),
    "caffemodel bytes": Format(".caffemodel", _file("digits.caffemodel"), damage_bytes, _convert_weights),
    "caffemodel fields": Format(".caffemodel", _file("digits.caffemodel"), _change_weights, _convert_weights),
    "prototxt bytes": Format(".prototxt", _file("digits.prototxt"), damage_bytes, _convert_prototxt),
    "prototxt fields": Format(".prototxt", _file("digits.prototxt"), _change_prototxt, _convert_prototxt),
    "tpum bytes": Format(".tpum", _programs, damage_bytes, _load),
    "tpum bytes, valid digest": Format(".tpum", _programs, _damage_signed, _load),
    "tpum fields, valid digest": Format(".tpum", _programs, _change_program, _load),
    "ranges bytes": Format(".json", _ranges, damage_bytes, _quantize),
    "ranges fields": Format(".json", _ranges, _change_json, _quantize),
    "manifest bytes": Format(".yaml", lambda: [MANIFEST.encode()], damage_bytes, _read_manifest),
    "manifest fields": Format(".yaml", lambda: [MANIFEST.encode()], _change_yaml, _read_manifest),
    "preprocess bytes": Format(".yaml", lambda: [PREPROCESS.encode()], damage_bytes, _read_preprocess),
    "preprocess fields": Format(".yaml", lambda: [PREPROCESS.encode()], _change_yaml, _read_preprocess),
    "npz bytes": Format(".npz", _arrays, damage_bytes, _read_arrays),
    "npz fields": Format(".npz", _arrays, _change_arrays, _read_arrays),
    "images": Format(".png", _images, damage_bytes, _decode),
    "tpum single bits": Format(".tpum", _programs, _flip_bit, _load, is_detected=True),
    "onnx cut": _cut(".onnx", small_files.onnx_files, _convert),
    "tflite cut": _cut(".tflite", small_files.tflite_files, _convert),
    "caffemodel cut": _cut(".caffemodel", small_files.caffemodels, _convert_small_weights),
    "prototxt cut": _cut(".prototxt", small_files.prototxts, _convert_prototxt),
    "tpum cut": _cut(".tpum", small_files.programs, _load, is_detected=True),
    "ranges cut": _cut(".json", small_files.ranges, _read_ranges),
    "manifest cut": _cut(".yaml", small_files.manifests, _read_manifest),
    "preprocess cut": _cut(".yaml", small_files.preprocessings, _read_preprocess),
    "npz cut": _cut(".npz", small_files.arrays, _read_arrays, is_detected=True),
    "images cut": _cut(".png", small_files.images, _decode),
}


def full_count(name: str) -> int:
    """Number of cases of a whole campaign."""
    if name.endswith("single bits"):
        return 10_000
    return FORMATS[name].most_cases(5_000 if "fields" in name else 20_000)


# Running


@dataclass
class Outcome:
    """Result of the cases of one format."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    failures: list[str] = field(default_factory=list)

    def row(self, name: str) -> str:
        """Row of the table in docs/security.md."""
        cells = (
            f"{self.tried:,}",
            f"{self.refused:,}",
            len(self.failures),
            f"{self.seconds:.1f}",
            f"{self.megabytes:.0f}",
        )
        return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def run_cases(name: str, seeds: Iterator[int] | range, report: Callable[[dict[str, Any]], None]) -> None:
    """Run cases in this process. ``report`` gets a record before and after each case."""
    chosen = FORMATS[name]
    contents = chosen.seeds()
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net{chosen.suffix}"
        for seed in seeds:
            _limit_cpu_time(4 * MOST_SECONDS)
            path.write_bytes(chosen.case(contents, name, seed))
            report({"case": seed})
            begun = time.process_time()
            outcome, failure = "accepted", ""
            try:
                chosen.use(path)
                failure = "accepted" if chosen.is_detected else ""
            except tc.InternalError as error:
                failure = f"{error}"
            except tc.TpuConvertError:
                outcome = "refused"
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            used = time.process_time() - begun
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024
            if used > MOST_SECONDS:
                failure = failure or f"{used:.1f} s"
            if grown > MOST_BYTES:
                failure = failure or f"{grown >> 20} MiB"
            report({"done": seed, "outcome": outcome, "failure": failure[:300], "seconds": used, "bytes": grown})


def _limit_cpu_time(seconds: float) -> None:
    """Let the system end this process when it has used some more seconds of CPU time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


def lines_of(worker: subprocess.Popen[bytes], limit: float) -> Iterator[bytes]:
    """Yield the lines that a process prints, and kill it if it prints nothing for ``limit`` seconds."""
    assert worker.stdout is not None
    begun = b""
    while select.select([worker.stdout], [], [], limit)[0]:
        part = os.read(worker.stdout.fileno(), 1 << 16)
        if not part:
            return
        *lines, begun = (begun + part).split(b"\n")
        yield from lines
    worker.kill()


def run_campaign(name: str, count: int, first: int = 0, limit: float = 600.0) -> Outcome:
    """Run the cases of one format in worker processes; a dead or hanging worker is a failure and is replaced."""
    found, seed, end = Outcome(), first, FORMATS[name].most_cases(first + count)
    while seed < end:
        command = [sys.executable, "-X", "faulthandler", __file__, "--worker", name, str(seed), str(end)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started = seed - 1
        for line in lines_of(worker, limit):
            record = json.loads(line)
            if "case" in record:
                started = record["case"]
                continue
            seed = record["done"] + 1
            found.tried += 1
            found.seconds = max(found.seconds, record["seconds"])
            found.megabytes = max(found.megabytes, record["bytes"] / (1 << 20))
            if record["failure"]:
                found.failures.append(f"{record['done']}: {record['failure']}")
            else:
                setattr(found, record["outcome"], getattr(found, record["outcome"]) + 1)
        worker.communicate()
        if seed < end:
            found.tried += 1
            found.failures.append(f"{started}: the process died (exit code {worker.returncode})")
            seed = max(started, seed) + 1
    return found


def main(arguments: list[str]) -> int:
    """Run campaigns and print a table."""
    if arguments[:1] == ["--worker"]:
        name, first, end = arguments[1], int(arguments[2]), int(arguments[3])
        run_cases(name, range(first, end), lambda record: print(json.dumps(record), flush=True))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--formats", default=",".join(name.replace(", ", "; ") for name in FORMATS))
    parser.add_argument("--count", type=int, help="by default that of a whole campaign")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args(arguments)
    names = [name.replace("; ", ", ") for name in given.formats.split(",")]
    if given.only is not None:
        for name in names:
            run_cases(name, range(given.only, given.only + 1), print)
        return 0
    print("| files | tried | refused | failures | most seconds | most MiB |\n|---|---|---|---|---|---|")
    is_clean = True
    for name in names:
        found = run_campaign(name, full_count(name) if given.count is None else given.count, given.first)
        print(found.row(name), flush=True)
        for failure in found.failures[:20]:
            print(f"    {failure}", file=sys.stderr, flush=True)
        is_clean = is_clean and not found.failures
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
