"""``tpuconvert generate`` and ``tpuconvert.generate``: equal results, choices of tokens, tokenizers, errors."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.byte_tokenizer import write_tokenizer
from tests.support.networks.decoders import FORMS, decoder
from tpuconvert.__main__ import main
from tpuconvert.cli.terminal import StreamedText
from tpuconvert.run.language import generator as implementation
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.text.visible_text import for_log

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
    for name in ("prompt_seconds", "seconds", "prompt_rate", "rate"):
        assert plain.pop(name) > 0 and expected.pop(name) > 0
    assert plain == expected


def test_choice_of_tokens(file: Path) -> None:
    def run(**options: float) -> tuple[int, ...]:
        return tc.generate(file, tokens=PROMPT, max_new_tokens=12, **options).new_tokens  # type: ignore[arg-type]

    assert run(temperature=5.0, seed=1) == run(temperature=5.0, seed=1) != run(temperature=5.0, seed=2)
    assert run(temperature=5.0, top_k=1, seed=1) == run()


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


@pytest.fixture
def chatting(tmp_path: Path) -> Path:
    """A decoder with a tokenizer of bytes and a chat template beside it."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tc.convert(decoder(seed=3)).save(tmp_path / "decoder.tpum")
    write_tokenizer(tmp_path, generation={"max_new_tokens": 4, "do_sample": True, "temperature": 3.0, "num_beams": 2})
    return tmp_path / "decoder.tpum"


def test_text_is_printed_while_it_is_generated(
    chatting: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    write = StreamedText.write
    monkeypatch.setattr(StreamedText, "write", lambda self, piece: (printed.append(piece), write(self, piece)))
    generation = tc.generate(chatting, prompt="hi")
    assert main(["generate", str(chatting), "--prompt", "hi"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{for_log(generation.text or '')}\n" and "".join(printed) == f"{generation.text}\n"
    assert len(printed) == 4 + 1
    note, speed = captured.err.splitlines()
    assert note.startswith("note: ") and note.endswith("without effect: num_beams")
    number = r"\d+\.\d tokens/s"
    assert re.fullmatch(f"prompt 2 tokens, {number}; generated 4 tokens, {number}", speed)


def test_options_win_over_the_files(chatting: Path, capsys: Captured) -> None:
    arguments = [str(chatting), "--prompt", "hi", "--max-new-tokens", "3", "--temperature", "0", "--json"]
    plain = json.loads(command(capsys, *arguments))
    assert plain["new_tokens"] == list(
        tc.generate(tc.load(chatting), tokens=plain["tokens"], max_new_tokens=3).new_tokens
    )


def test_several_prompts(chatting: Path, capsys: Captured) -> None:
    """As arguments and as lines of a file: the results of separate calls, and caches of a common start."""
    texts = ["hi there", "hi", "hi then"]
    expected = [tc.generate(chatting, prompt=text) for text in texts]
    words = [word for text in texts for word in ("--prompt", text)]
    plain = json.loads(command(capsys, str(chatting), *words, "--json"))["generations"]
    assert [tuple(item["new_tokens"]) for item in plain] == [item.new_tokens for item in expected]
    assert [item["reused_tokens"] for item in plain] == [0, 1, 2]
    path = chatting.parent / "prompts.txt"
    path.write_text("\r\n".join(["hi there", "", "hi", "hi then", ""]))
    printed = command(capsys, str(chatting), "--prompt-file", str(path))
    assert printed == "\n\n".join(for_log(item.text or "") for item in expected) + "\n"
    path.write_text("hi\n")
    assert len(json.loads(command(capsys, str(chatting), "--prompt-file", str(path), "--json"))["generations"]) == 1


def test_chat_answers_a_prompt(chatting: Path, capsys: Captured) -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "hi"}]
    expected = tc.generate(chatting, prompt=messages)
    arguments = [str(chatting), "--chat", "--system", "a", "--prompt", "hi", "--json"]
    plain = json.loads(command(capsys, *arguments))
    assert plain["tokens"] == list(expected.tokens) and plain["new_tokens"] == list(expected.new_tokens)


def test_conversation_by_lines_of_stdin(chatting: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\nthere"))
    messages, answers = [], []
    for text in ("hi", "there"):
        messages.append({"role": "user", "content": text})
        answers.append(tc.generate(chatting, prompt=messages, seed=5).text or "")
        messages.append({"role": "assistant", "content": answers[-1]})
    capsys.readouterr()
    assert main(["generate", str(chatting), "--chat", "--seed", "5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "".join(f"{for_log(text)}\n" for text in answers)
    assert re.search(r"prompt \d+ tokens \(\d+ reused\)", captured.err)


def test_conversation_on_a_terminal(chatting: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["hi"])
    shown = []

    def read(prompt: str) -> str:
        shown.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("builtins.input", read)
    answer = tc.generate(chatting, prompt=[{"role": "user", "content": "hi"}]).text or ""
    assert command(capsys, str(chatting), "--chat") == f"{for_log(answer)}\n\n"
    assert shown == ["> ", "> "]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chat", "--json"], "--json with --chat, and no prompt"),
        (["--chat", "--tokens", "1"], "--chat with --tokens"),
        (["--prompt", "a", "--system", "b"], "--system without --chat"),
        (["--prompt", "a", "--prompt-file", "b"], "expected either tokens or a prompt"),
        (["--prompt-file", "absent.txt"], "absent.txt: no such file"),
        (["--prompt", "a", "--top-p", "0.5", "--temperature", "0"], "top_p has no effect with temperature 0"),
        (["--prompt", "a", "--repetition-penalty", "0"], "repetition_penalty is 0, expected more than 0"),
        (["--prompt", "a", "--top-p", "2"], "--top-p"),
    ],
)
def test_options_that_exclude_one_another(chatting: Path, arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["generate", str(chatting), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("content", "message"), [(b"\n \n", "no prompt"), (b"\xff", "it is not UTF-8")])
def test_files_of_prompts(chatting: Path, content: bytes, message: str, capsys: Captured) -> None:
    path = chatting.parent / "prompts.txt"
    path.write_bytes(content)
    assert main(["generate", str(chatting), "--prompt-file", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected either tokens or a prompt"),
        (["--tokens", "1", "--prompt", "a"], "expected either tokens or a prompt"),
        (["--prompt", "a"], "text needs the tokenizer of the model, which has no tokenizer.json beside it"),
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


def test_an_error_begins_on_a_line_of_its_own(file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens before the error are printed."""
    whole = tc.generate(file, tokens=PROMPT, max_new_tokens=3).new_tokens
    run = Session.run

    def fail_at_the_end(session: Session, *args: Any, **given: Any) -> Any:
        if session.length >= len(PROMPT) + 2:
            raise RunError("index 7 is outside of 0..6")
        return run(session, *args, **given)

    monkeypatch.setattr(Session, "run", fail_at_the_end)
    assert main(["generate", str(file), "--tokens", "3,1,4,1,5"]) == RunError.exit_code
    printed = capsys.readouterr()
    assert printed.out == f"{','.join(map(str, whole))}\n" and "fails after 7 tokens" in printed.err


def test_new_plans_are_named_before_the_text(file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "replanning", "node 'mask' has no form")
    command(capsys, str(file), "--tokens", "3,1,4,1,5", "--max-new-tokens", "4")
    assert main(["generate", str(file), "--tokens", "3,1,4,1,5", "--max-new-tokens", "4"]) == 0
    messages = capsys.readouterr().err
    assert messages.startswith("note: every token needs a new plan, which takes most of its time: node 'mask'")
    assert messages.count("node 'mask'") == 1
