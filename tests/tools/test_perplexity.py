"""Perplexity of decoders with packed weights, and the text that they are trained on."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, Decoder
from tools.accuracy.packed_weights_accuracy import main
from tools.accuracy.perplexity import LENGTH, bits_per_weight, feeds_of, perplexity, samples_of
from tools.zoo.decoders.library_text import read_library_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random decoder with weights that are large enough to be packed, and random tokens."""
    proto = Decoder(EXPLICIT, layers=1, heads=8, hidden=128, vocabulary=300).build()
    onnx.save(proto, tmp_path / "decoder.onnx")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "tokens.npz", training=rng.integers(0, 300, 4000), held_out=rng.integers(0, 300, 1000))
    return tmp_path


def test_samples_cover_the_tokens() -> None:
    samples = samples_of(np.arange(1000), 3)
    assert samples[:, 0].tolist() == [0, 372, 744]
    assert (np.diff(samples, axis=1) == 1).all() and samples[-1, -1] == 999


def test_perplexity_is_the_inverse_geometric_mean_of_the_probabilities(folder: Path) -> None:
    model = tc.convert(folder / "decoder.onnx")
    rows = np.random.default_rng(1).integers(0, 300, (2, LENGTH))
    probabilities = []
    for row in rows:
        logits = tc.Session(model).run({"input_ids": row[None]})["logits"][0].astype(np.float64)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        probabilities += [shares[position, row[position + 1]] for position in range(LENGTH - 1)]
    geometric = math.prod(probability ** (1 / len(probabilities)) for probability in probabilities)
    assert perplexity(model, rows) == pytest.approx(1 / geometric, rel=1e-6)


def test_feeds_have_all_inputs_and_empty_caches(folder: Path) -> None:
    (feeds,) = feeds_of(folder / "decoder.onnx", np.zeros((1, LENGTH), np.int64))
    inputs = onnx.load(folder / "decoder.onnx").graph.input
    assert set(feeds) == {port.name for port in inputs}
    assert all(array.shape[2] == 0 for name, array in feeds.items() if name.startswith("past"))


def test_table_has_float_8_and_4_bits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["", "--decoder", str(folder), "--samples", "4", "--held-out", "2"])
    main()
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert "perplexity" in header
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:3] for row in cells[:4]] == [
        ["float32", "no", "no"],
        ["int8", "no", "no"],
        ["int4", "no", "no"],
        ["int4", "no", "4"],
    ]
    assert cells[0][4] == "-" and cells[1][4] == "+0.00%"
    assert [float(row[5]) for row in cells[:2]] == [32, pytest.approx(8.5, abs=0.1)]


def test_model_without_packed_weights_has_32_bits(folder: Path) -> None:
    assert bits_per_weight(tc.convert(folder / "decoder.onnx")) == "32"


def test_parts_of_the_library_are_disjoint(tmp_path: Path) -> None:
    for index in range(64):
        (tmp_path / f"{index**3}.py").write_text(f"x = {index}\n", encoding="utf-8")
    for skipped in ("site-packages", "test"):
        (tmp_path / skipped).mkdir()
        (tmp_path / skipped / "m.py").write_text("other\n", encoding="utf-8")
    text = read_library_text(tmp_path)
    assert text == read_library_text(tmp_path)
    assert len(text.training) + len(text.held_out) == 64 and not set(text.training) & set(text.held_out)
    assert 0 < len(text.held_out) < 16 and "other\n" not in text.training


def test_standard_library_has_text() -> None:
    text = read_library_text()
    assert sum(map(len, text.training)) > 8 * sum(map(len, text.held_out)) > 8e5
