"""Text of tokens that arrive one by one, in pieces of whole characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Decoded text ends with it if the last bytes are the beginning of a character."""


class TextPieces:
    """Text of the tokens of a sequence, in pieces. A token may have a part of the bytes of a character.

    The text of a token may depend on the token before, as a space between words. So each piece is the difference of two
    texts that begin at the same earlier token.

    Args:
        decode: returns the text of tokens.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._start = 0  # first token of the two texts
        self._end = 0  # number of tokens whose text was returned

    def add(self, token: int) -> str:
        """Return the text that a token completes; empty if its last character is not complete."""
        self._tokens.append(token)
        piece = self._rest()
        if not piece or piece.endswith(_REPLACEMENT):
            return ""
        self._start, self._end = self._end, len(self._tokens)
        return piece

    def flush(self) -> str:
        """Return the rest of the text, with a replacement character for bytes that are not a whole one."""
        piece = self._rest()
        self._start, self._end = self._end, len(self._tokens)
        return piece

    def _rest(self) -> str:
        before = self._decode(self._tokens[self._start : self._end])
        return self._decode(self._tokens[self._start :])[len(before) :]
