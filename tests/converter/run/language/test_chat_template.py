"""Chat templates: the functions of transformers, a sandbox, and limits of time, memory and text."""

import os
from pathlib import Path

import pytest

import tpuconvert as tc
from tpuconvert.run.language import chat_template
from tpuconvert.run.language.chat_template import ChatTemplate

pytest.importorskip("jinja2", reason="jinja2 is not installed")

MESSAGES = [
    {"role": "system", "content": " Be é "},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "q"},
]


def render(source: str) -> str:
    return ChatTemplate(source, "tokenizer_config.json", {"bos_token": "<s>"}).prompt_of(MESSAGES)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
            " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
            "<|im_start|>system\n Be é <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            "Yo<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "{{ bos_token }}{%- set ns = namespace(found=false) -%}\n{%- for m in messages %}\n    {%- if m.role == "
            "'system' %}{% set ns.found = true %}{% continue %}{% endif %}\n  {% generation %}{{ m.content | trim }}"
            "{% endgeneration %}\n{% endfor %}{{ ns.found }} {{ {'a': 'é<'}|tojson }}{{ dict(a=1).a }}"
            "{% if tools is not none %}T{% endif %}{% for k in range(3) %}{% if k == 1 %}{% break %}{% endif %}{{ k }}"
            "{% endfor %}",
            '<s>HiYoqTrue {"a": "é<"}10',
        ),
    ],
)
def test_text_of_transformers(source: str, expected: str) -> None:
    """The expected texts were rendered by transformers 5.24."""
    assert render(source) == expected


def test_time_of_the_system() -> None:
    assert render("{{ strftime_now('%Y') }}").isdigit()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("\n{% if %}", "line 2: TemplateSyntaxError"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ x.y }}", "'x' is undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for a in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "its text has more than 4000000 characters"),
    ],
)
def test_errors_name_file_and_next_step(source: str, message: str) -> None:
    with pytest.raises(tc.CorruptInputError, match=message) as caught:
        render(source)
    assert caught.value.file == "tokenizer_config.json" and caught.value.hint


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limits for a process")
@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    ],
)
def test_limit_of_memory(source: str) -> None:
    with pytest.raises(tc.CorruptInputError, match="more than 1024 MiB"):
        render(source)


def test_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    loop = "{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(tc.CorruptInputError, match="it takes more than 1 s"):
        render(loop)


def test_no_file_of_the_current_folder_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    assert render("{{ bos_token }}") == "<s>"


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(tc.MissingExtraError, match="needs the package jinja2") as caught:
        render("")
    assert "tpuconvert[language]" in caught.value.hint
