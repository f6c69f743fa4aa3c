"""Completion in bash of words with ``=`` and ``:``, such as ``op:conv=int8``."""

from __future__ import annotations

import re

from click.shell_completion import BashComplete, CompletionItem


class JoinedWords(BashComplete):
    """Completion in bash, which treats ``=`` and ``:`` as separate words and replaces the last word only."""

    _prefix = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the last one, and the last one."""
        words, last = super().get_completion_args()
        joined: list[str] = []
        is_open = False
        for word in [*words, last]:
            is_separator = re.fullmatch("[=:]+", word) is not None
            if joined and (is_separator or is_open):
                joined[-1] += word
            else:
                joined.append(word)
            is_open = is_separator
        last_word = joined.pop()
        self._prefix = last_word if last_word.endswith(("=", ":")) else last_word.removesuffix(last)
        return joined, last_word

    def format_completion(self, item: CompletionItem) -> str:
        """Return the line for the script, without the part of the word that bash keeps."""
        value = item.value.removeprefix(self._prefix)
        if value == item.value:  # click separates --option= from the value
            value = value.removeprefix(self._prefix.partition("=")[2])
        return f"{item.type},{value}"
