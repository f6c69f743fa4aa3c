"""The counter of instructions finds the innermost loops of assembler text, and counts the right instructions."""

import pytest

from tools.aarch64.environment import CPUS, command, missing, module, variables
from tools.aarch64.loops import Loop, functions, innermost_loops

NESTED = """\
\t.text
_ZN1a4workEv:
.LFB1:
\tmov\tx0, 0
.L4:
\tmovi\tv0.4s, 0
.L3:
\tldr\tq1, [x1], 16
\tsdot\tv0.4s, v1.16b, v2.4b[0]
\tsdot\tv3.4s, v1.16b, v2.4b[1]
\t// a comment
\tcmp\tx1, x2
\tbne\t.L3
\tadd\tx0, x0, 1
\tcbnz\tx0, .L4
\tret
_ZN1a5otherEi.part.0:
.L7:
\tfmla\tv0.4s, v1.4s, v2.s[0]
\tb.ne\t.L7
\tb\t.L9
.L9:
\tret
"""


def test_functions_are_separated_by_their_names():
    found = functions(NESTED)
    assert [name.split("(")[0] for name in found] == ["a::work", "a::other"]
    assert "\tret" in found["a::work()"]


def test_only_the_innermost_loop_is_returned():
    (loop,) = innermost_loops(functions(NESTED)["a::work()"])
    assert [line.split()[0] for line in loop.lines] == ["ldr", "sdot", "sdot", "cmp", "bne"]
    assert (loop.products, loop.count("ld"), loop.vector_instructions) == (32, 1, 3)


def test_a_forward_branch_is_no_loop():
    other = next(lines for name, lines in functions(NESTED).items() if name.startswith("a::other"))
    (loop,) = innermost_loops(other)
    assert loop.lines == ("fmla\tv0.4s, v1.4s, v2.s[0]", "b.ne\t.L7")
    assert loop.products == 4


def test_a_branch_back_over_a_call_is_no_inner_loop():
    lines = [".L1:", "\tadd\tv0.4s, v0.4s, v1.4s", "\tb.ne\t.L1", "\tbl\tmemcpy", "\tldr\tq0, [sp]", "\tb\t.L1"]
    assert [len(loop.lines) for loop in innermost_loops(lines)] == [2]
    assert innermost_loops([".L2:", *lines[3:5], "\tb.ne\t.L2"]) == []


@pytest.mark.parametrize(("name", "products"), [("usmmla", 32), ("smlal2", 4), ("add", 0)])
def test_products_of_an_instruction(name, products):
    assert Loop((f"{name}\tv0.4s, v1.16b, v2.16b",)).products == products


def test_a_missing_system_has_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("TPUCONVERT_AARCH64", str(tmp_path))
    reason = missing()
    assert "is not installed" in reason or "python -m tools.aarch64 prepare" in reason


def test_the_emulated_python_loads_the_build_of_this_checkout(monkeypatch, tmp_path):
    monkeypatch.setenv("TPUCONVERT_AARCH64", str(tmp_path))
    monkeypatch.setenv("TPUCONVERT_ISA", "avx2")  # not for the emulated process
    environment = variables(tmp_path / "view")
    assert environment["TPUCONVERT_NATIVE_LIBRARY"] == str(module())
    assert "TPUCONVERT_ISA" not in environment
    assert environment["PYTHONPATH"].startswith(str(tmp_path / "packages"))
    words = command(CPUS["dotprod"], "-c", "pass")
    assert words[words.index("-cpu") + 1] == "neoverse-n1"
    assert words[-2:] == ["-c", "pass"]
