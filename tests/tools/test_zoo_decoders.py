"""Trials of exported decoders, on a decoder built here; no exporter is needed."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import MICROSOFT, decoder
from tests.support.sampled import sampled
from tpuconvert.schema.errors import ThresholdError

pytest.importorskip("onnxruntime.quantization")
from tools.zoo.decoders.__main__ import main
from tools.zoo.decoders.decoder_cases import EXPORTERS, FAMILIES, PROMPT, STEPS, Case, cases
from tools.zoo.decoders.decoder_trial import COLUMNS, PROGRAMS, try_case

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
    assert trial.results == dict.fromkeys((step for step in COLUMNS if step not in ("padding", PROGRAMS)), "")
    assert trial.is_green and trial.cells() == ["yes", "yes", "yes", "-", "yes", "yes", "yes", "-"]
    assert main(["run", str(folder), "--families", "llama", "--exporters", "gqa", "--match", "gqa-mask"]) == 0
    assert "| llama-gqa-mask-open-caches | yes | yes | yes | - | yes | yes | yes | - |" in capsys.readouterr().out


@pytest.mark.slow  # runs all steps of a decoder a second time
def test_other_logits_and_tokens_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(folder / "llama.npz") as stored:
        arrays = dict(stored)
    np.savez(folder / "llama.npz", **{**arrays, "logits": arrays["logits"][:, ::-1], "tokens": arrays["tokens"] * 0})
    results = try_case(CASE, folder).results
    assert [step for step, reason in results.items() if reason] == ["logits", "tokens"]
    assert "differs from transformers" in str(results["logits"])
    assert main(["run", str(folder), "--families", "llama", "--exporters", "gqa"]) == 1
    assert "| llama-gqa-both-open-caches | not made |" in capsys.readouterr().out


@dataclass
class Compiled:
    """A compiled export.

    Args:
        host_nodes: nodes that its first part leaves to the host.
        differs: raise the error of a program whose results differ.
    """

    host_nodes: list[str]
    differs: bool

    @property
    def proofs(self) -> dict[str, dict[str, list[str]]]:
        return {"block_0": {"host_nodes": self.host_nodes}, "lm_head": {"host_nodes": []}}

    def check(self) -> None:
        if self.differs:
            raise ThresholdError("1 tensor of the compiled program differs")


@pytest.mark.parametrize(
    ("compiled", "reason"),
    sampled(
        [
            (Compiled([], False), ""),
            (Compiled(["topk"], False), "AssertionError: nodes of block_0 are left to the host"),
            (Compiled([], True), "ThresholdError: 1 tensor of the compiled program differs"),
        ],
        every=3,
    ),
)
def test_programs_of_the_parts(
    compiled: Compiled, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/vendor/test_decoders.py compiles parts; here the result of an export is made up."""
    export = tc.export
    monkeypatch.setattr(tc, "export", lambda *args, **given: compiled if "compile" in given else export(*args, **given))
    assert try_case(CASE, folder, "bm1684x").results[PROGRAMS] == reason
    arguments = ["run", str(folder), "--families", "llama", "--match", "gqa-mask", "--compile", "bm1684x"]
    assert main(arguments) == bool(reason)
    assert f"| yes | {'no' if reason else 'yes'} |\n" in capsys.readouterr().out


def test_matrix_has_every_family_and_exporter() -> None:
    matrix = list(cases())
    assert {(case.family, case.exporter) for case in matrix} == {(f, e) for f in FAMILIES for e in EXPORTERS}
    assert len({case.name for case in matrix}) == len(matrix) == 182
