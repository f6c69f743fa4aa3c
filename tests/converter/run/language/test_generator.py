"""Generators: tokens one by one, caches of common prefixes, text, conversations, and the files beside a model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.byte_tokenizer import SPECIAL, VOCABULARY, ids_of, write_tokenizer
from tests.support.networks.decoders import FORMS, decoder
from tests.support.sampled import sampled
from tpuconvert.run.language.text_pieces import TextPieces
from tpuconvert.runtime.session.session import Session
from tpuconvert.schema.errors import RunError
from tpuconvert.schema.types import Array

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", params=FORMS)
def model(request: pytest.FixtureRequest) -> tc.Model:
    return tc.convert(decoder(request.param, seed=3))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A decoder, with the files of a tokenizer beside it."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tc.convert(decoder(seed=3)).save(tmp_path / "decoder.tpum")
    write_tokenizer(tmp_path)
    return tmp_path / "decoder.tpum"


def sampling(**options: Any) -> tc.Sampling:
    return tc.Sampling(**{"max_new_tokens": 6, **options})


def count_tokens(generator: tc.Generator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """List of the numbers of tokens of the runs from now on."""
    counts: list[int] = []
    run = generator._session.run

    def counted(ids: Array) -> dict[str, Array]:
        counts.append(ids.shape[1])
        return run(ids)

    monkeypatch.setattr(generator._session, "run", counted)
    return counts


def test_tokens_arrive_one_by_one(model: tc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tc.generate(model, tokens=PROMPT, max_new_tokens=6)
    with tc.Generator(model, sampling=sampling()) as generator:
        counts = count_tokens(generator, monkeypatch)
        stream = generator.stream(tokens=PROMPT)
        assert counts == []
        assert next(stream) == tc.Token(expected.new_tokens[0], "")
        assert counts == [len(PROMPT)] and stream.generation.new_tokens == expected.new_tokens[:1]
        assert [token.id for token in stream] == list(expected.new_tokens[1:])
        assert counts == [len(PROMPT), 1, 1, 1, 1, 1] and next(stream, None) is None
        generation = stream.generation
    assert generation.new_tokens == expected.new_tokens and not generation.stopped
    assert generation.rate == pytest.approx(5 / generation.seconds)
    assert generation.prompt_rate == pytest.approx(len(PROMPT) / generation.prompt_seconds)


def test_common_prefix_is_not_run_again(model: tc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer prompt, one that branches off, the same one again, a shorter one, and one with nothing in common."""
    with tc.Generator(model, sampling=sampling(repetition_penalty=1.2)) as generator:
        first = generator.generate(tokens=PROMPT)
        longer = [*PROMPT, *first.new_tokens, 8, 7]
        for tokens, reused in (
            (longer, len(longer) - 3),  # the last token of the first continuation was never run
            ([*longer[:10], 40, 41], 10),
            ([*longer[:10], 40, 41], 11),
            (longer[:4], 3),
            ([20, *longer], 0),
        ):
            counts = count_tokens(generator, monkeypatch)
            generation = generator.generate(tokens=tokens)
            assert generation.reused_tokens == reused and counts[0] == len(tokens) - reused
            expected = tc.generate(model, tokens=tokens, max_new_tokens=6, repetition_penalty=1.2)
            assert generation.new_tokens == expected.new_tokens and expected.reused_tokens == 0


def test_interrupted_run_leaves_usable_caches(model: tc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with tc.Generator(model, sampling=sampling()) as generator:
        run = generator._session.run

        def interrupted(ids: Array) -> dict[str, Array]:
            run(ids)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(generator._session, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                generator.generate(tokens=PROMPT)
        assert generator.generate(tokens=PROMPT).new_tokens == tc.generate(model, tokens=PROMPT).new_tokens[:6]


def test_new_stream_ends_the_one_before(model: tc.Model) -> None:
    with tc.Generator(model) as generator:
        first = generator.stream(tokens=PROMPT)
        next(first)
        generator.stream(tokens=PROMPT)
        with pytest.raises(tc.UsageError, match="another continuation has begun"):
            next(first)


def test_text_has_the_pieces_of_whole_characters(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is made to generate a character of two tokens, and the beginning of one of three."""
    chosen = iter(ids_of("th", "\u00c3", "\u00a9", "a", "\u00e2", "\u0124"))
    monkeypatch.setattr(
        "tpuconvert.run.language.generator.Choice", lambda sampling: lambda logits, tokens: next(chosen)
    )
    with tc.Generator(file, sampling=sampling()) as generator:
        stream = generator.stream("in the")
        assert [token.text for token in stream] == ["th", "", "é", "a", "", "\ufffd"]
        assert stream.generation.text == "théa\ufffd"
    assert stream.generation.tokens == tuple(ids_of("in", "\u0120", "th", "e"))


def test_conversation_reuses_the_caches(file: Path) -> None:
    with tc.Generator(file, sampling=sampling(temperature=3.0)) as generator:
        messages = [{"role": "user", "content": "hi"}]
        first = generator.generate(messages)
        assert first.tokens == tuple(ids_of("<s>", "<|user|>", "h", "i", "<|end|>", "<|assistant|>"))
        messages += [{"role": "assistant", "content": "I"}, {"role": "user", "content": "a"}]
        second = generator.generate(messages)
        assert second.tokens[:6] == first.tokens and second.reused_tokens >= 6
    assert second.new_tokens == tc.generate(file, prompt=messages, max_new_tokens=6, temperature=3.0).new_tokens


def test_end_tokens_and_defaults_of_the_files(file: Path) -> None:
    """``generation_config.json`` wins over ``tokenizer_config.json``, and arguments over both."""
    free = tc.generate(file, tokens=PROMPT, max_new_tokens=8, stop_tokens=[49]).new_tokens
    write_tokenizer(file.parent, generation={"eos_token_id": [free[2], 48], "max_new_tokens": 5})
    generation = tc.generate(file, tokens=PROMPT)
    assert generation.new_tokens == free[: free.index(free[2]) + 1] and generation.stopped
    assert tc.generate(file, tokens=PROMPT, stop_tokens=[49]).new_tokens == free[:5]
    assert tc.generate(file, tokens=PROMPT, stop_tokens=[49], max_new_tokens=8).new_tokens == free
    write_tokenizer(file.parent, generation={"eos_token_id": free[0], "transformers_version": "5.24.0"})
    assert tc.generate(file, tokens=PROMPT).new_tokens == free[:1]
    model, folder = tc.load(file), file.parent
    assert tc.generate(model, tokens=PROMPT, max_new_tokens=8).new_tokens == free
    assert tc.generate(model, tokens=PROMPT, max_new_tokens=8, tokenizer=folder).new_tokens == free[:1]


def test_end_token_of_the_tokenizer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = iter(ids_of("a", "<|end|>", "b"))
    monkeypatch.setattr(
        "tpuconvert.run.language.generator.Choice", lambda sampling: lambda logits, tokens: next(chosen)
    )
    generation = tc.generate(file, prompt="hi")
    assert generation.stopped and generation.text == "a" and generation.new_tokens == tuple(ids_of("a", "<|end|>"))


def test_draws_of_the_files(file: Path) -> None:
    stored = {"do_sample": True, "temperature": 5.0, "top_k": 0, "top_p": 0.9}
    write_tokenizer(file.parent, generation=stored)
    options: dict[str, Any] = {"tokens": PROMPT, "max_new_tokens": 12, "stop_tokens": [49]}
    model = tc.load(file)
    drawn = tc.generate(model, **options, temperature=5.0, top_p=0.9, seed=1).new_tokens
    assert tc.generate(file, **options, seed=1).new_tokens == drawn
    greedy = tc.generate(model, **options).new_tokens
    assert tc.generate(file, **options, temperature=0).new_tokens == greedy != drawn
    write_tokenizer(file.parent, generation={**stored, "do_sample": False})
    assert tc.generate(file, **options).new_tokens == greedy


def test_parameters_without_effect_are_named(file: Path) -> None:
    stored = {
        "num_beams": 4,
        "typical_p": 1.0,
        "suppress_tokens": [],
        "no_repeat_ngram_size": 3,
        "guidance_scale": None,
        "max_length": 4096,
        "renormalize_logits": False,
    }
    write_tokenizer(file.parent, generation=stored)
    with tc.Generator(file) as generator:
        (note,) = generator.notes
    names = "num_beams, no_repeat_ngram_size, max_length"
    assert note == f"{file.parent / 'generation_config.json'}: not implemented, and without effect: {names}"


def test_ids_need_no_tokenizer(file: Path) -> None:
    """A damaged tokenizer beside the model does not matter for ids."""
    (file.parent / "tokenizer.json").write_text("{}")
    assert tc.generate(file, tokens=PROMPT, max_new_tokens=2).text is None


def test_template_in_a_file_of_its_own(file: Path) -> None:
    (file.parent / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    generation = tc.generate(file, prompt=[{"role": "user", "content": "hi"}], max_new_tokens=1)
    assert generation.tokens == tuple(ids_of("h", "i", "!"))


def test_template_with_a_name(file: Path) -> None:
    path = file.parent / "tokenizer_config.json"
    templates = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    path.write_text(json.dumps({"chat_template": templates}))
    generation = tc.generate(file, prompt=[{"role": "user", "content": "hi"}], max_new_tokens=1)
    assert generation.tokens == tuple(ids_of("b"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    sampled(
        [
            ("tokenizer.json", "{}", "is not a tokenizer.json"),
            ("tokenizer.json", "\x00", "is not a tokenizer.json"),
            ("generation_config.json", "{", "it is not JSON"),
            ("generation_config.json", '{"temperature": 1, "temperature": 2}', "occurs twice"),
            ("generation_config.json", "[1]", "it contains a list, expected an object"),
            ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is x, expected the id of a token"),
            ("generation_config.json", '{"eos_token_id": [1, -1]}', "eos_token_id"),
            ("generation_config.json", '{"max_new_tokens": true}', "max_new_tokens is 'True', expected an integer"),
            ("generation_config.json", '{"do_sample": true, "top_p": "0.9"}', "top_p is '0.9', expected a number"),
            ("generation_config.json", '{"do_sample": true, "top_p": NaN}', "top_p is 'nan'"),
            ("generation_config.json", '{"repetition_penalty": -1}', "repetition_penalty is -1"),
            ("generation_config.json", '{"do_sample": "true"}', "do_sample is 'true', expected true or false"),
            ("generation_config.json", "\udcff", "it is not UTF-8"),
            ("tokenizer_config.json", "[" * 100000, "it is not JSON"),
            ("tokenizer_config.json", '{"chat_template": "{{ 1 / 0 }}"}', "ZeroDivisionError"),
            ("tokenizer_config.json", '{"chat_template": "{{ \'\\\\ud800\' }}"}', "its text is not Unicode"),
            ("generation_config.json", f'{{"repetition_penalty": {"1" * 400}}}', "repetition_penalty is '1111"),
        ]
    ),
)
def test_damaged_files(file: Path, name: str, content: str, message: str) -> None:
    path = file.parent / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(tc.CorruptInputError, match=message) as caught:
        tc.generate(file, prompt=[{"role": "user", "content": "hi"}])
    assert name in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("template", [None, ["a"], 3, [{"name": ["default"], "template": "x"}]])
def test_missing_template(file: Path, template: Any) -> None:
    write_tokenizer(file.parent, template=template)
    with pytest.raises(tc.UsageError, match="contain no chat template"):
        tc.generate(file, prompt=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "user"}], [{"role": "user", "content": 3}], ["hi"], [{"role": "user", "content": "\ud800"}]],
)
def test_messages_are_checked(file: Path, messages: Any) -> None:
    with pytest.raises(tc.UsageError, match=r"conversation|not Unicode"):
        tc.generate(file, prompt=messages)


def test_text_that_is_not_unicode(file: Path) -> None:
    with pytest.raises(tc.UsageError, match="at character 1, which is not Unicode"):
        tc.generate(file, prompt="a\udcff")


def test_tokenizers_that_fail_on_some_text(file: Path) -> None:
    """The package reads both files; the first raises an exception for an unknown word, the second panics."""
    path = file.parent / "tokenizer.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "none"}}))
    with pytest.raises(tc.CorruptInputError, match=r"cannot encode the text.*"):
        tc.generate(file, prompt="zz")
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 1}
    path.write_text(json.dumps({**stored, "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}}))
    with pytest.raises(tc.CorruptInputError, match="cannot decode the tokens") as caught:
        tc.generate(file, prompt="a", max_new_tokens=8)
    assert "tokenizer.json" in str(caught.value)


def test_large_tokenizers_are_not_read(file: Path) -> None:
    with (file.parent / "tokenizer.json").open("r+b") as stored:
        stored.truncate(1 << 33)
    with pytest.raises(tc.ResourceLimitError, match="bytes of text, more than"):
        tc.generate(file, prompt="a")


def test_a_full_context_is_named(model: tc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def fail_at_the_end(session: Session, *args: Any, **given: Any) -> Any:
        if session.length >= 3:
            raise RunError("index_select: index 3 is outside of 0..2")
        return run(session, *args, **given)

    monkeypatch.setattr(Session, "run", fail_at_the_end)
    with tc.Generator(model, sampling=sampling(max_new_tokens=8)) as generator:
        stream = generator.stream(tokens=[1, 2, 3])
        with pytest.raises(RunError, match="fails after 3 tokens, which may be all") as caught:
            list(stream)
    assert "at most 3" in str(caught.value)
    assert len(stream.generation.new_tokens) == 1  # what was generated is not lost


def test_ids_are_integers(model: tc.Model) -> None:
    with pytest.raises(tc.UsageError, match="the ids of tokens are not integers"):
        tc.generate(model, tokens=[1, 2.5])  # type: ignore[list-item]
    assert tc.generate(model, tokens=np.array([1, 2]), max_new_tokens=1).tokens == (1, 2)


def test_folder_without_a_tokenizer(file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(tc.UsageError, match=r"the folder has no tokenizer\.json"):
        tc.generate(file, prompt="a", tokenizer=tmp_path / "empty")
    with pytest.raises(tc.UsageError, match="no such file or folder"):
        tc.generate(file, prompt="a", tokenizer=tmp_path / "absent")


def test_pieces_of_a_real_tokenizer(file: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(file.parent / "tokenizer.json"))
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(len(SPECIAL), len(VOCABULARY), 40).tolist()
        pieces = TextPieces(tokenizer.decode)
        assert "".join([*map(pieces.add, ids), pieces.flush()]) == tokenizer.decode(ids)
