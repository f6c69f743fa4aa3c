"""Recurrent cells with zero initial state, casts and quantization, Fourier transforms, boxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.tflite.cases import Case, Given, Variable, f32, feed, i32, numbers

_BATCH, _TIME, _SIZE, _UNITS, _PROJECTED = 2, 3, 4, 5, 3
_TANH = 4


def _w(name: str, *shape: int) -> Any:
    return numbers(name, shape, -0.7, 0.7)


def _cell(name: str, size: int, out: int, *, coupled: bool = False, peephole: bool = False) -> list[Any]:
    """Weights of four gates, recurrent weights, peepholes and biases."""
    gates = [None if coupled and gate == 0 else _w(f"{name}w{gate}", _UNITS, size) for gate in range(4)]
    recurrent = [None if coupled and gate == 0 else _w(f"{name}r{gate}", _UNITS, out) for gate in range(4)]
    holes = [_w(f"{name}p{gate}", _UNITS) if peephole else None for gate in range(3)]
    if coupled:
        holes[0] = None
    biases = [None if coupled and gate == 0 else _w(f"{name}b{gate}", _UNITS) for gate in range(4)]
    return [*gates, *recurrent, *holes, *biases]


def _lstm() -> Iterator[Case]:
    sequence = (_BATCH, _TIME, _SIZE)
    for note, coupled, peephole, projection, normed in (
        ("plain", False, False, False, False),
        ("coupled", True, False, False, False),
        ("peephole", False, True, False, False),
        ("projection", False, False, True, False),
        ("all", False, True, True, True),
        ("normalized", False, False, False, True),
    ):
        out = _PROJECTED if projection else _UNITS
        cell = _cell(note, _SIZE, out, coupled=coupled, peephole=peephole)
        projected = [_w("wp", _PROJECTED, _UNITS), _w("bp", _PROJECTED)] if projection else [None, None]
        state = [Variable((_BATCH, out)), Variable((_BATCH, _UNITS))]
        norms = [numbers(f"norm{gate}", (_UNITS,), 0.5, 1.5) for gate in range(4)] if normed else [None] * 4
        tail = [*cell, *projected, *state, *norms]
        for clip, time_major in ((0.0, False), (0.4, True)):
            options = {
                "fused_activation_function": _TANH,
                "cell_clip": clip,
                "proj_clip": clip,
                "time_major": time_major,
            }
            shape = (_TIME, _BATCH, _SIZE) if time_major else sequence
            name = f"{note} {'time first' if time_major else 'batch first'}"
            table = "UnidirectionalSequenceLSTMOptions"
            version = 3 if normed else 1
            yield Case(
                "UNIDIRECTIONAL_SEQUENCE_LSTM",
                [feed("x", shape), *tail],
                table=table,
                options=options,
                note=name,
                atol=4e-6,
                version=version,
            )
        options = {"fused_activation_function": _TANH, "cell_clip": 0.0, "proj_clip": 0.0}
        step = [feed("x", (_BATCH, _SIZE)), *(tail if normed else tail[:-4])]
        yield Case("LSTM", step, table="LSTMOptions", options=options, note=note, atol=4e-6, version=2 if normed else 1)
    operands = [
        feed("x", (1, _SIZE)),
        feed("h", (1, _UNITS)),
        _w("w", 4 * _UNITS, _SIZE + _UNITS),
        _w("b", 4 * _UNITS),
        feed("c", (1, _UNITS)),
    ]
    options = {"fused_activation_function": _TANH, "kernel_type": 1}
    yield Case("LSTM", operands, ["FLOAT32"] * 4, "LSTMOptions", options, note="basic kernel", atol=4e-6, version=2)
    for merge in (False, True):
        ways = [*_cell("forward", _SIZE, _UNITS), None, None, *_cell("backward", _SIZE, _UNITS), None, None]
        state = [Variable((_BATCH, _UNITS)) for _ in range(4)]
        options = {"fused_activation_function": _TANH, "merge_outputs": merge, "time_major": True}
        operands = [feed("x", (_TIME, _BATCH, _SIZE)), *ways, *state, *[None] * 9]
        results = ["FLOAT32"] * (1 if merge else 2)
        yield Case(
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            operands,
            results,
            "BidirectionalSequenceLSTMOptions",
            options,
            note=f"merged {merge}",
            atol=4e-6,
        )


def _simple() -> Iterator[Case]:
    cell = [_w("w", _UNITS, _SIZE), _w("r", _UNITS, _UNITS), _w("b", _UNITS), Variable((_BATCH, _UNITS))]
    for activation in (0, 1, _TANH):
        options = {"fused_activation_function": activation}
        yield Case(
            "RNN",
            [feed("x", (_BATCH, _SIZE)), *cell],
            table="RNNOptions",
            options=options,
            note=str(activation),
        )
        for time_major in (False, True):
            shape = (_TIME, _BATCH, _SIZE) if time_major else (_BATCH, _TIME, _SIZE)
            options = {"fused_activation_function": activation, "time_major": time_major}
            note = f"{activation} {time_major}"
            yield Case(
                "UNIDIRECTIONAL_SEQUENCE_RNN",
                [feed("x", shape), *cell],
                table="SequenceRNNOptions",
                options=options,
                note=note,
                atol=4e-6,
            )
    for merge in (False, True):
        options = {"fused_activation_function": 1, "merge_outputs": merge, "time_major": False}
        operands = [feed("x", (_BATCH, _TIME, _SIZE)), *cell, *cell, None, None, None]
        results = ["FLOAT32"] * (1 if merge else 2)
        yield Case(
            "BIDIRECTIONAL_SEQUENCE_RNN",
            operands,
            results,
            "BidirectionalSequenceRNNOptions",
            options,
            note=f"merged {merge}",
            atol=4e-6,
        )
    for rank in (1, 2):
        filters, memory = 4 * rank, 6
        operands = [
            feed("x", (_BATCH, _SIZE)),
            _w("wf", filters, _SIZE),
            _w("wt", filters, memory),
            _w("bias", 4),
        ]
        operands.append(Variable((_BATCH, filters * memory)))
        options = {"rank": rank, "fused_activation_function": rank - 1}
        yield Case("SVDF", operands, table="SVDFOptions", options=options, note=f"rank {rank}")


def _types() -> Iterator[Case]:
    names = ("float32", "int32", "int64", "bool", "uint8", "int8", "int16", "uint32")
    for source in names:
        for target in names:
            if source == target or ("uint32" in (source, target) and "bool" in (source, target)):
                continue
            data = feed(f"cast{source}", (3, 5), 0 if source[0] == "u" or target[0] == "u" else -9, 9, source)
            yield Case("CAST", [data], [target.upper()], "CastOptions", note=f"{source} {target}")
    for source, target, values in (
        ("int8", "uint8", (-128, -1, 0, 127)),
        ("uint8", "int8", (0, 127, 128, 255)),
        ("int32", "int8", (-1000, -129, 128, 300, 65_537)),
        ("int32", "uint8", (-1, 256, 1_000_000)),
        ("int64", "int16", (-40_000, 32_768, 1 << 20)),
        ("int16", "uint8", (-1, 300, -32_768)),
    ):
        wrapped = Given(np.asarray(values, source))
        yield Case("CAST", [wrapped], [target.upper()], "CastOptions", note=f"{source} {target} wraps")
    for dtype, zero in (("int8", -3), ("uint8", 130), ("int16", 0)):
        yield Case(
            "QUANTIZE",
            [feed("real", (4, 9), -20, 20)],
            [dtype.upper()],
            note=dtype,
            scale=0.21,
            zero_point=zero,
        )
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        yield Case(
            "DEQUANTIZE",
            [feed(f"stored{dtype}", (4, 9), low, high, dtype)],
            note=dtype,
            scale=0.21,
            zero_point=zero,
        )


def _spectra_and_boxes() -> Iterator[Case]:
    generator = np.random.default_rng(5)
    corner = generator.uniform(0, 4, (30, 2))
    boxes = np.concatenate((corner, corner + generator.uniform(0.5, 2, (30, 2))), 1).astype(np.float32)
    boxes[3] = boxes[3, [2, 3, 0, 1]]  # corners in the other order
    scores = Given(generator.permutation(30).astype(np.float32) / 30)
    for most, overlap, score in ((5, 0.5, 0.0), (40, 0.3, 0.4), (30, 0.0, -1.0)):
        operands = [Given(boxes), scores, i32(most), f32(overlap), f32(score)]
        note = f"{most} {overlap} {score}"
        yield Case("NON_MAX_SUPPRESSION_V4", operands, ["INT32", "INT32"], note=note)
        yield Case("NON_MAX_SUPPRESSION_V5", [*operands, f32(0)], ["INT32", "FLOAT32", "INT32"], note=note)


CASES = [*_lstm(), *_simple(), *_types(), *_spectra_and_boxes()]
