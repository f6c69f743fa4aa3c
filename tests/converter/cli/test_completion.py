"""``tpuconvert completion``: the generated scripts, and the bash script when it is executed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.support.sampled import sampled
from tpuconvert.__main__ import main
from tpuconvert.cli.group import group
from tpuconvert.cli.value_completion import COMPLETERS
from tpuconvert.conversion.options.options import OPTIONS
from tpuconvert.conversion.options.quantization import ALGORITHMS
from tpuconvert.optimizer.precision_rules import parse_rule
from tpuconvert.schema.definition.chip_names import KNOWN

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
    sampled(
        [
            (["tpuconvert", "ver"], {"verify"}),
            (["tpuconvert", "convert", "--quantize", "i"], {"int8"}),
            (["tpuconvert", "completion", ""], {"bash", "zsh", "fish"}),
            (["tpuconvert", "evaluate", "--min-t"], {"--min-top1", "--min-top5"}),
            # bash splits words at "=" and ":", and replaces only the last part
            (["tpuconvert", "convert", "a", "--keep-float", "op", ":", "softmax_1"], {"softmax_16b"}),
            (["tpuconvert", "convert", "a", "--precision", "op", ":", "conv", "=", "int"], {"int16", "int8"}),
            (["tpuconvert", "convert", "a", "--precision", "op", ":", "conv", "=", "int8,symm"], {"int8,symmetric"}),
            (["tpuconvert", "convert", "a", "--effort", "="], {"default", "low", "high"}),
            (["tpuconvert", "convert", "a", "--quantize", "=", "i"], {"int8"}),
            (["tpuconvert", "convert", "a", "--precision", "=", "op", ":", "conv", "=", "int"], {"int16", "int8"}),
        ]
    ),
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


def completions(line: str) -> list[str]:
    """The completions of the last word of a command line, without the program."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(group, {}, "tpuconvert", "_X").get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("convert net.onnx --chip ", list(KNOWN)),
        ("ops --chip bm1684", ["bm1684", "bm1684x"]),
        ("convert net.onnx --quantize ", ["none", "int8"]),
        ("quantize net.onnx --calibration-method m", ["mse", "minmax"]),
        ("tune net.onnx --calibration-method per", ["percentile", "percentile:"]),
        ("convert net.onnx --without ", list(ALGORITHMS)),
        ("convert net.onnx --without=two", ["two-term-weights"]),
        ("convert net.onnx --disable-rule merge_perm", ["merge_permutes"]),
        ("convert net.onnx --precision ", ["op:"]),
        ("convert net.onnx --precision op:softmax_1", ["op:softmax_16b="]),
        ("convert net.onnx --precision conv*=float", ["conv*=float32", "conv*=float16"]),
        ("convert net.onnx --precision a=b=int8,per", ["per-tensor", "per-channel", "percentile", "percentile:"]),
        ("convert net.onnx --precision x=percentile:9,per", ["per-tensor", "per-channel"]),
        ("convert net.onnx --keep-float op:softmax_1", ["op:softmax_16b"]),
        ("ops softmax_1", ["softmax_16b"]),
    ],
)
def test_values_are_completed(line: str, answers: list[str]) -> None:
    lead = line.split(" ")[-1].rpartition(",")[0]
    assert completions(line) == [f"{lead},{answer}" if lead else answer for answer in answers]


def test_settings_that_complete_are_accepted() -> None:
    for rule in completions("convert net.onnx --precision x="):
        assert parse_rule(f"{rule}9" if rule.endswith(":") else rule).selector == "x"


def test_completers_are_of_declared_options() -> None:
    assert set(COMPLETERS) <= set(OPTIONS)


def test_wrong_calls(capsys: Captured) -> None:
    assert main(["completion"]) == 2
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
