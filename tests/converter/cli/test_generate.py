"""``tpuconvert generate`` and ``tpuconvert.generate``: equal results, choices of tokens, tokenizers, errors."""

import json
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import FORMS, decoder
from tpuconvert.__main__ import main
from tpuconvert.run import generate as implementation

Captured = pytest.CaptureFixture[str]
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module", params=FORMS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / f"{request.param}.tpum"
    tc.convert(decoder(request.param, seed=3)).save(path)
    return path


def command(capsys: Captured, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["generate", *arguments]) == 0
    return capsys.readouterr().out


def test_greedy_continuation_is_the_largest_logit_of_the_whole_sequence(file: Path) -> None:
    """Each token is compared with a run of all tokens before it."""
    found = tc.generate(file, tokens=PROMPT, max_new_tokens=6)
    session, ids = tc.Session(file), list(PROMPT)
    for token in found.new_tokens:
        session.reset()
        ids.append(int(np.argmax(session.run(input_ids=[ids])["logits"][0, -1])))
        assert token == ids[-1]
    assert len(found.new_tokens) == 6 and not found.stopped and found.text is None


def test_command_prints_the_tokens_of_the_function(file: Path, capsys: Captured) -> None:
    options = {"max_new_tokens": 7, "temperature": 0.8, "top_k": 5, "seed": 9}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    found = tc.generate(file, tokens=PROMPT, **options)  # type: ignore[arg-type]  # by name
    printed = command(capsys, str(file), "--tokens", "3, 1,4,1,5", *words)
    assert printed == f"{','.join(map(str, found.new_tokens))}\n" == f"{found}\n"
    plain = json.loads(command(capsys, str(file), "--tokens", "3,1,4,1,5", *words, "--json"))
    expected = found.to_dict()
    for name in ("prompt_seconds", "seconds"):
        assert plain.pop(name) > 0 and expected.pop(name) > 0
    assert plain == expected


def test_choice_of_tokens(file: Path) -> None:
    def run(**options: float) -> tuple[int, ...]:
        return tc.generate(file, tokens=PROMPT, max_new_tokens=12, **options).new_tokens  # type: ignore[arg-type]

    assert run(temperature=5.0, seed=1) == run(temperature=5.0, seed=1) != run(temperature=5.0, seed=2)
    assert run(temperature=5.0, top_k=1, seed=1) == run()


def test_drawn_tokens_follow_the_softmax() -> None:
    logits = np.log(np.array([0.5, 0.1, 0.3, 0.1], np.float32))
    choose = implementation._Choice(1.0, 3, 0)
    counts = np.bincount([choose(logits) for _ in range(20000)], minlength=4) / 20000
    np.testing.assert_allclose(counts, [0.5 / 0.9, 0.1 / 0.9, 0.3 / 0.9, 0], atol=0.015)  # 4 standard deviations
    assert implementation._Choice(0.0, None, 0)(np.array([1, 3, 3, 2], np.float32)) == 1


def test_ends_after_a_stop_token(file: Path, capsys: Captured) -> None:
    whole = tc.generate(file, tokens=PROMPT, max_new_tokens=8).new_tokens
    stop = whole[2]
    wanted = whole[: whole.index(stop) + 1]
    found = tc.generate(file, tokens=PROMPT, max_new_tokens=8, stop_tokens=[stop])
    assert found.new_tokens == wanted and found.stopped
    printed = command(capsys, str(file), "--tokens", "3,1,4,1,5", "--max-new-tokens", "8", "--stop-token", str(stop))
    assert printed == f"{','.join(map(str, wanted))}\n"


def test_prompt_is_run_in_chunks(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(0).integers(0, 50, 40).tolist()
    wanted = tc.generate(file, tokens=tokens, max_new_tokens=5).new_tokens
    monkeypatch.setattr(implementation, "CHUNK", 7)
    assert tc.generate(file, tokens=tokens, max_new_tokens=5).new_tokens == wanted


def test_text_through_a_tokenizer(file: Path, tmp_path: Path, capsys: Captured) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{index}": index for index in range(50)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    found = tc.generate(file, prompt="w3 w1 w4 w1 w5", tokenizer=path, max_new_tokens=4)
    assert found.tokens == tuple(PROMPT)
    assert found.new_tokens == tc.generate(file, tokens=PROMPT, max_new_tokens=4).new_tokens
    assert found.text == " ".join(f"w{token}" for token in found.new_tokens)
    arguments = ["--prompt", "w3 w1 w4 w1 w5", "--tokenizer", str(path), "--max-new-tokens", "4"]
    assert command(capsys, str(file), *arguments) == f"{found.text}\n"
    path.write_text("{}")
    with pytest.raises(tc.CorruptInputError, match=r"is not a tokenizer\.json"):
        tc.generate(file, prompt="w1", tokenizer=path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected either tokens or a prompt"),
        (["--tokens", "1", "--prompt", "a"], "expected either tokens or a prompt"),
        (["--prompt", "a"], "a prompt without a tokenizer"),
        (["--tokens", "1,x"], "'x' is not the id of a token"),
        (["--tokens", "1,50"], "token 50 is outside of the vocabulary, expected 0 to 49"),
        (["--tokens", "1", "--tokenizer", "absent.json"], "absent.json"),
    ],
)
def test_errors(file: Path, arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["generate", str(file), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_model_without_states_is_refused(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "ports.tpum"
    tc.convert(decoder(FORMS[0]), source_options=tc.SourceOptions(state="ports")).save(path)
    assert main(["generate", str(path), "--tokens", "1"]) == 2
    assert "keeps no state between runs" in capsys.readouterr().err
