"""Help of a command: the options under headings, the usual ones first, with one sentence each."""

from __future__ import annotations

import re

import click

from tpuconvert.conversion.options.options import GROUP_OF
from tpuconvert.installed import PAGES
from tpuconvert.option_declaration import OptionGroup

FIRST = "Options"
"""Heading of the options without a topic: the usual ones."""

MOST = 12
"""Largest number of options in one section."""

_TOPICS = {
    "Choice of the tokens": (
        *("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop_tokens"),
    ),
    "Labels and drawing": ("draw", "decode", "scores", "min_score", "nms_iou"),
    "Limits": (
        *("strict_accuracy", "max_transposes", "max_different", "limits", "max_difference", "min_cosine", "min_sqnr"),
        *("max_cost_growth", "max_constants_growth", "max_size_growth", "fail_on", "max_drop", "max_cost", "budget"),
        *("lower", "upper", "min_top1", "min_top5", "strict", "time_limit"),
    ),
    "Optimizer": ("strict_set", "disable_rules", "trace", "dumps", "validate", "validate_on", "golden"),
    "Engine": ("backend", "threads", "memory_limit"),
    "Several workers": ("workers", "scheduler"),
    "Plugins, and options in files": ("plugins", "no_plugins", "config", "set"),
    "Reports": ("page", "report", "markdown", "junit", "sarif", "progress_mode", "as_json"),
}
"""Topics of options that several commands have, with names of parameters. A group of ``Options`` is one, too."""

_GROUPS = tuple(dict.fromkeys(GROUP_OF.values()))

_TOPIC_OF = {name: topic for topic, names in _TOPICS.items() for name in names}


class SectionedCommand(click.Command):
    """A command whose help has a section for each topic of its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the usual ones first."""
        options = [item for item in self.get_params(ctx) if isinstance(item, click.Option)]
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in (FIRST, *map(_title_of, _GROUPS), *_TOPICS)
        }
        for parameter in options:
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = topic_of(parameter) if len(options) > MOST else FIRST
                sections[title].append((record[0], first_sentence(record[1])))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the address of the whole texts."""
        name = ctx.command_path.removeprefix("tpuconvert ").replace(" ", "-")
        formatter.write_paragraph()
        formatter.write(f"In full: {PAGES}/reference/options.md#{name}\n")


def topic_of(parameter: click.Option) -> str:
    """Return the heading of an option."""
    name = parameter.name or ""
    group = GROUP_OF.get(name)
    return _TOPIC_OF.get(name) or (FIRST if group is None else _title_of(group))


def _title_of(group: type[OptionGroup]) -> str:
    """Return the name of a group as words: ``PackedWeights -> Packed weights``."""
    first, *rest = re.findall("[A-Z][a-z]*", group.__name__)
    return " ".join([first, *map(str.lower, rest)])


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, and the default that click adds in brackets."""
    sentence, _, added = text.partition("  [")
    default = re.match(r"default: [^;\]]*|required", added)
    return re.split(r"(?<=\.)(?<!e\.g\.)\s+", sentence, maxsplit=1)[0] + (f"  [{default[0]}]" if default else "")
