"""``tpuconvert completion``."""

from __future__ import annotations

import click

from tpuconvert.cli.choice import Choice
from tpuconvert.cli.group import COMPLETION, group
from tpuconvert.cli.help_sections import SectionedCommand

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=SectionedCommand)
@click.argument("shell", type=Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and their values.

    \b
    bash:  tpuconvert completion bash > ~/.local/share/bash-completion/completions/tpuconvert
    zsh:   tpuconvert completion zsh > "${fpath[1]}/_tpuconvert"
    fish:  tpuconvert completion fish > ~/.config/fish/completions/tpuconvert.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    script = kind(group, {}, "tpuconvert", COMPLETION)
    click.echo(script.source_template % script.source_vars())  # not script.source(): it runs bash to read its version
