"""``tpuconvert completion``: the generated scripts, and the bash script when it is executed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tpuconvert.__main__ import main

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script(shell: str, capsys: Captured) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_TPUCONVERT_COMPLETE={shell}_complete" in script
    program = shutil.which(shell)
    if program is not None:
        Path("script").write_text(script)
        subprocess.run([program, "-n", "script"], check=True)


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["tpuconvert", "ver"], {"verify"}),
        (["tpuconvert", "convert", "--quantize", "i"], {"int8"}),
        (["tpuconvert", "completion", ""], {"bash", "zsh", "fish"}),
        (["tpuconvert", "evaluate", "--min-t"], {"--min-top1", "--min-top5"}),
    ],
)
def test_bash_completes(words: list[str], answers: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source <(tpuconvert completion bash)\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n"
        '_tpuconvert_completion tpuconvert\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == answers


def test_wrong_calls(capsys: Captured) -> None:
    assert main(["completion"]) == 2
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
