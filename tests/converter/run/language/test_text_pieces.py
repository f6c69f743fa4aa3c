"""Text of tokens that arrive one by one: whole characters only, and the text of all tokens in the end."""

from collections.abc import Sequence

import numpy as np
import pytest

from tpuconvert.run.language.text_pieces import TextPieces


def decode_bytes(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def pieces_of(tokens: Sequence[int]) -> list[str]:
    pieces = TextPieces(decode_bytes)
    return [*map(pieces.add, tokens), pieces.flush()]


def test_character_waits_for_its_last_byte() -> None:
    assert pieces_of("aé€😀.".encode()) == ["a", "", "é", "", "", "€", "", "", "", "😀", ".", ""]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (b"a\xe2\x82", ["a", "", "", "\ufffd"]),  # ends in a character
        (b"\xffab", ["", "\ufffda", "b", ""]),
        (b"\xe2\x82a", ["", "", "\ufffda", ""]),
    ],
)
def test_bytes_that_are_not_a_character(tokens: bytes, expected: list[str]) -> None:
    assert pieces_of(tokens) == expected


def test_pieces_are_the_text_of_all_tokens() -> None:
    rng = np.random.default_rng(0)
    for length in range(1, 60):
        text = "".join(rng.choice(list("aé€😀 \n"), length))
        assert "".join(pieces_of(text.encode())) == text


def test_space_between_words_belongs_to_the_second() -> None:
    pieces = TextPieces(lambda tokens: " ".join(f"w{token}" for token in tokens))
    assert [pieces.add(3), pieces.add(1), pieces.add(4), pieces.flush()] == ["w3", " w1", " w4", ""]
