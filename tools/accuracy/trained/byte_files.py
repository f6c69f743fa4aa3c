"""Contents of files of 24 types, made from modules of the standard library of Python and from photos."""

from __future__ import annotations

import bz2
import gzip
import html
import io
import json
import lzma
import pickle
import sqlite3
import sysconfig
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tools.accuracy.trained.pictures import photo, photos
from tools.accuracy.trained.sounds import notes
from tpuconvert.schema.types import Array

HALF, BLOCK, PADDING = 1024, 4096, 256
"""Bytes that the classifier of files sees of the beginning and of the end, where it looks for them, and its padding."""


class _Source:
    """A module of the standard library, and what the files are made of."""

    def __init__(self, index: int) -> None:
        library = Path(sysconfig.get_paths()["stdlib"])
        modules = sorted(path for path in library.glob("*.py") if path.stat().st_size > 3000)
        path = modules[(index * 7) % len(modules)]
        self.index, self.name = index, path.name
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.content = self.text.encode()
        self.lines = self.text.splitlines()
        self.words = [word for word in self.text.replace("(", " ").split() if word.isidentifier()][:120]

    def picture(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        photo("coco", self.index % 128).resize((96, 80)).save(buffer, kind)
        return buffer.getvalue()

    def numbered(self, template: str, count: int = 120) -> str:
        """Return the words in lines of a template with ``{word}`` and ``{number}``."""
        return "\n".join(template.format(word=word, number=number) for number, word in enumerate(self.words[:count]))


def _html(source: _Source) -> bytes:
    title, body = source.name, html.escape(source.text[:3000])
    head = f"<!DOCTYPE html><html><head><title>{title}</title></head>"
    return f"{head}<body><h1>{title}</h1><pre>{body}</pre></body></html>".encode()


def _csv(source: _Source) -> bytes:
    rows = (f"{number},{word},{len(word)},{number / 7:.3f}" for number, word in enumerate(source.words))
    return "\n".join(rows).encode()


def _xml(source: _Source) -> bytes:
    names = source.numbered('  <name id="{number}">{word}</name>')
    return f'<?xml version="1.0"?>\n<names>\n{names}\n</names>\n'.encode()


def _markdown(source: _Source) -> bytes:
    sections = (f"## {word}\n\n- see `{word}`\n- [link]({word}.md)\n" for word in source.words[:30])
    return (f"# {source.name}\n\n" + "\n\n".join(sections)).encode()


def _c(source: _Source) -> bytes:
    functions = source.numbered("static int {word}_{number}(int a) {{ return a * {number}; }}", 40)
    main = 'int main(void) { printf("%d\\n", 1); return 0; }\n'
    return f"#include <stdio.h>\n{functions}\n{main}".encode()


def _shell(source: _Source) -> bytes:
    lines = (f'if [ -z "${word.upper()}" ]; then echo {word}; fi' for word in source.words[:30])
    return ("#!/bin/bash\nset -e\n" + "\n".join(lines)).encode()


def _javascript(source: _Source) -> bytes:
    template = "const {word}{number} = (a) => {{ console.log(a); return a + {number}; }};"
    return ("'use strict';\n" + source.numbered(template, 40)).encode()


def _sql(source: _Source) -> bytes:
    rows = source.numbered("INSERT INTO t VALUES ({number}, '{word}');")
    return f"CREATE TABLE t (id INTEGER, name TEXT);\n{rows}".encode()


def _zip(source: _Source) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(source.name), source.content)
    return buffer.getvalue()


def _tar(source: _Source) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(source.name)
        member.size = len(source.content)
        archive.addfile(member, io.BytesIO(source.content))
    return buffer.getvalue()


def _sqlite(source: _Source) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table a(x, y)")
    connection.executemany("insert into a values(?, ?)", enumerate(source.lines))
    return connection.serialize()


def _wav(source: _Source) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((notes(source.index, 8000) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def _npy(source: _Source) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.random.default_rng(source.index).normal(size=500))
    return buffer.getvalue()


def _json(source: _Source) -> bytes:
    return json.dumps({"module": source.name, "lines": source.lines[:80]}, indent=source.index % 3 or None).encode()


TYPES: tuple[Callable[[_Source], bytes], ...] = (
    lambda source: source.content,
    _json,
    _html,
    _csv,
    _xml,
    _markdown,
    _c,
    _shell,
    lambda source: source.numbered("{word}:\n  - name: {word}\n    value: {number}", 40).encode(),
    lambda source: source.numbered("[{word}]\nkey = {number}\npath = /usr/{word}\n", 40).encode(),
    _javascript,
    _sql,
    lambda source: gzip.compress(source.content, mtime=0),
    lambda source: bz2.compress(source.content),
    lambda source: lzma.compress(source.content),
    _zip,
    _tar,
    _sqlite,
    _wav,
    lambda source: pickle.dumps(source.lines),
    _npy,
    lambda source: source.picture("PNG"),
    lambda source: source.picture("GIF"),
    lambda source: photos("coco")[source.index % 128].read_bytes(),
)


def content(index: int) -> bytes:
    """Return the content of a file; its type is ``index % 24``."""
    return TYPES[index % len(TYPES)](_Source(index))


def first_and_last_bytes(data: bytes) -> Array:
    """Return the input of the classifier of files: HALF bytes of the beginning and of the end without white space."""
    start = np.frombuffer(data[:BLOCK].lstrip()[:HALF], np.uint8)
    end = np.frombuffer(data[-BLOCK:].rstrip()[-HALF:], np.uint8)
    values = np.full(2 * HALF, PADDING, np.int32)
    values[: len(start)] = start
    values[len(values) - len(end) :] = end
    return values
