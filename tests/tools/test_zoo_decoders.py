"""Trials of exported decoders, on a decoder built here; no exporter is needed."""

from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import MICROSOFT, decoder

pytest.importorskip("onnxruntime.quantization")
from tools.zoo.decoders.__main__ import main
from tools.zoo.decoders.decoder_cases import EXPORTERS, FAMILIES, PROMPT, STEPS, Case, cases
from tools.zoo.decoders.decoder_trial import COLUMNS, try_case

CASE = Case("llama", "gqa", "mask", "open", "caches")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A decoder in place of an export, with its tokens and logits."""
    proto = decoder(MICROSOFT)
    CASE.path(tmp_path).write_bytes(proto.SerializeToString())
    model = tc.convert(proto)
    prompt = np.random.default_rng(0).integers(0, 50, (1, PROMPT))
    tokens = np.array(tc.generate(model, tokens=prompt[0], max_new_tokens=STEPS).new_tokens)
    logits = tc.Session(model).run(np.concatenate([prompt, tokens[None, :-1]], 1))["logits"]
    np.savez(tmp_path / "llama.npz", prompt=prompt, tokens=tokens, logits=logits, padded=logits)
    return tmp_path


def test_all_steps_of_a_decoder_succeed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = try_case(CASE, folder)
    assert trial.results == dict.fromkeys((step for step in COLUMNS if step != "padding"), "")
    assert trial.is_green and trial.cells() == ["yes", "yes", "yes", "-", "yes", "yes", "yes"]
    assert main(["run", str(folder), "--families", "llama", "--exporters", "gqa", "--match", "gqa-mask"]) == 0
    assert "| llama-gqa-mask-open-caches | yes | yes | yes | - | yes | yes | yes |" in capsys.readouterr().out


def test_other_logits_and_tokens_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(folder / "llama.npz") as stored:
        arrays = dict(stored)
    np.savez(folder / "llama.npz", **{**arrays, "logits": arrays["logits"][:, ::-1], "tokens": arrays["tokens"] * 0})
    results = try_case(CASE, folder).results
    assert [step for step, reason in results.items() if reason] == ["logits", "tokens"]
    assert "differs from transformers" in str(results["logits"])
    assert main(["run", str(folder), "--families", "llama", "--exporters", "gqa"]) == 1
    assert "| llama-gqa-both-open-caches | not made |" in capsys.readouterr().out


def test_matrix_has_every_family_and_exporter() -> None:
    matrix = list(cases())
    assert {(case.family, case.exporter) for case in matrix} == {(f, e) for f in FAMILIES for e in EXPORTERS}
    assert len({case.name for case in matrix}) == len(matrix) == 182
