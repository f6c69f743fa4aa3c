"""Small valid files as seeds: one model per operator, because a large file slows every case and hides its structure."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tests.support.caffe.opencv_cases import CASES as CAFFE
from tests.support.onnx.cases import elements, operators, tensors, windows
from tests.support.tflite.cases import all_cases
from tests.support.tflite.reference import model_of

LARGEST = 2048
"""Size of a seed in bytes."""


def small_files(target: str) -> list[bytes]:
    """Return small files for a target of ``reader_fuzzer``; none if its formats have no others."""
    makers = {"onnx": _onnx, "tflite": _tflite, "prototxt": _prototxt, "tpum": _tpum, "arrays": _arrays}
    return makers[target]() if target in makers else []


def _onnx() -> list[bytes]:
    found: dict[str, bytes] = {}
    for case in (*operators.CASES, *tensors.CASES, *windows.CASES, *elements.CASES):
        content = case.model().SerializeToString()
        if case.op not in found and len(content) <= LARGEST:
            found[case.op] = content
    return list(found.values())


def _tflite() -> list[bytes]:
    found: dict[str, bytes] = {}
    for case in all_cases():
        content = model_of(case)
        if case.op not in found and len(content) <= LARGEST:
            found[case.op] = content
    return list(found.values())


def _prototxt() -> list[bytes]:
    return [case.text.encode() for case in CAFFE if len(case.text) <= LARGEST]


def _tpum() -> list[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tpum"
        for content in _onnx():
            with contextlib.suppress(tc.TpuConvertError):
                tc.convert(content).save(path)
                found.append(path.read_bytes())
    return found


def _arrays() -> list[bytes]:
    """Archives with one array per kind of type, and a plain array."""
    found = []
    for kind in ("<f4", ">f8", "i1", "?", "<c8", "S3", "<U2", "<M8[s]", [("a", "<i4"), ("b", "u1")]):
        made = io.BytesIO()
        np.savez(made, np.zeros((2, 3), kind))
        found.append(made.getvalue())
    plain = io.BytesIO()
    np.save(plain, np.asfortranarray(np.zeros((2, 3), np.float32)))
    return [*found, plain.getvalue()]
