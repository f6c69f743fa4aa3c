"""Chat templates: messages become the text of a prompt."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuconvert.run.language import template_process
from tpuconvert.schema.errors import CorruptInputError, MissingExtraError, UsageError
from tpuconvert.schema.text.json_text import parse_json
from tpuconvert.workers.child_process import run_module

SECONDS = 10
"""Limit of the time of a template."""

MEMORY = 1 << 30
"""Limit of the address space of its process, in bytes."""

LONGEST = 4_000_000
"""Largest number of characters of its text."""

Messages = Sequence[Mapping[str, str]]
"""Messages of a conversation, as ``{"role": "user", "content": "Hello"}``."""


@dataclass(frozen=True)
class ChatTemplate:
    """Template of jinja2 that is published with a model.

    Args:
        source: its text.
        file: name of the file that contains it.
        variables: texts of special tokens by their names, such as ``bos_token``.
    """

    source: str
    file: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def prompt_of(self, messages: Messages) -> str:
        """Return the prompt for an answer to the messages.

        The template is rendered in a process with limits of time and memory, as it is a program of unknown origin.

        Raises:
            CorruptInputError: it is not valid, refuses the messages, or exceeds the limits.
            MissingExtraError: jinja2 is not installed.
            UsageError: a message has a value without a form in JSON.
        """
        if importlib.util.find_spec("jinja2") is None:
            hint = "pip install 'tpuconvert[language]', or continue text"
            raise MissingExtraError("a chat template needs the package jinja2", hint=hint)
        variables: dict[str, Any] = {**self.variables, "messages": [dict(message) for message in messages]}
        variables |= {"add_generation_prompt": True, "tools": None, "documents": None}
        limits = {"memory": MEMORY, "seconds": SECONDS, "longest": LONGEST}
        try:
            request = json.dumps({"template": self.source, "variables": variables, **limits})
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"a message has a value without a form in JSON: {error}", hint="write it as text"
            ) from error
        answer = self._answer(request)
        if "text" not in answer:
            raise self._error(answer["error"])
        return str(answer["text"])

    def _answer(self, request: str) -> dict[str, Any]:
        try:
            name = template_process.__name__
            done = run_module(name, input=request.encode(), capture_output=True, timeout=2 * SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self._error(f"it takes more than {SECONDS} s") from error
        if done.returncode < 0:
            raise self._error(f"it takes more than {SECONDS} s or {MEMORY >> 20} MiB")
        if done.returncode:
            lines = done.stderr.decode(errors="replace").split("\n")
            raise self._error(
                next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")[:500]
            )
        try:
            answer: dict[str, Any] = parse_json(done.stdout.decode())
        except ValueError as error:
            raise self._error(f"its text is not Unicode: {error}") from error
        return answer

    def _error(self, problem: str) -> CorruptInputError:
        hint = "get the file of the model again, or continue text instead of messages"
        return CorruptInputError(f"the chat template cannot be rendered: {problem}", file=self.file, hint=hint)
