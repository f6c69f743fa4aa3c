"""Write into docs/inside/kernels.md: instructions and estimated cycles of the inner loops for AArch64.

    python -m tools.aarch64 costs [--llvm-mca PROGRAM] [--check]

The instructions are counted in the compiled loops. The cycles are the estimate of llvm-mca's model of each processor
for a loop whose data is in the first-level cache. LLVM 19 has models of the Neoverse processors, which older versions
lack.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.aarch64.environment import REPOSITORY
from tools.aarch64.loops import Loop, main_loop, widest_loop
from tools.pages.generated_file import replace_part

PAGE = REPOSITORY / "docs" / "inside" / "kernels.md"
CPUS = ("cortex-a53", "cortex-a55", "neoverse-n1", "neoverse-v1", "apple-m1")
FEATURES = {"dotprod": {"cortex-a53"}, "i8mm": {"cortex-a53", "cortex-a55", "neoverse-n1", "apple-m1"}}
"""Processors that lack an instruction set."""
ITERATIONS = 400


@dataclass(frozen=True)
class Kernel:
    """A loop of the table. ``results`` are the outputs of an iteration for loops that do not multiply matrices."""

    title: str
    source: str
    function: str
    results: int = 0

    @property
    def isa(self) -> str:
        """Instruction set of the source file."""
        return Path(self.source).stem.rsplit("_", 1)[1]


PRODUCTS = (
    Kernel("conv and matmul, INT8", "int8/conv/panel_kernels_neon.cpp", "multiply<6>"),
    Kernel("conv and matmul, INT8", "int8/conv/panel_kernels_dotprod.cpp", "multiply<6>"),
    Kernel("conv and matmul, INT8", "int8/conv/panel_kernels_i8mm.cpp", "multiply<6>"),
    Kernel("Winograd conv, INT8", "int8/winograd/winograd_kernels_neon.cpp", "multiply_tile<6, 2>"),
    Kernel("depthwise conv, INT8, three positions", "int8/conv/panel_kernels_neon.cpp", "depthwise_words_neon"),
    Kernel("depthwise conv, INT8, three positions", "int8/conv/panel_kernels_dotprod.cpp", "depthwise_bytes"),
    Kernel("depthwise conv, INT8, three positions", "int8/conv/panel_kernels_i8mm.cpp", "depthwise_bytes"),
    Kernel("conv and matmul, float32", "float32/matmul/matmul_kernel_neon.cpp", "fast_tile<6, 4>"),
)
ELEMENTS = (
    Kernel("requantization, one rounding", "int8/conv/panel_epilogue_neon.cpp", "PanelEpilogue)2, true>", 16),
    Kernel("requantization, two roundings", "int8/conv/panel_epilogue_neon.cpp", "PanelEpilogue)3, true>", 16),
    Kernel("residual add with requantization", "int8/epilogue/residual_neon.cpp", "::residual(", 16),
    Kernel("lookup table of bytes", "int8/elementwise/element_kernels_neon.cpp", "look_up(", 16),
)
ELEMENT_FILE = "int8/elementwise/element_kernels_neon.cpp"
PORTABLE = (
    Kernel("integer sums", ELEMENT_FILE, "add(tpuconvert::Lanes"),
    Kernel("saturated products", ELEMENT_FILE, "multiply_limited("),
    Kernel("integer limits", ELEMENT_FILE, "::clamp("),
    Kernel("float limits", ELEMENT_FILE, "float_clamp("),
    Kernel("float sums", ELEMENT_FILE, "float_add("),
    Kernel("rounding of floats", ELEMENT_FILE, "from_float("),
    Kernel("quantization of floats", ELEMENT_FILE, "quantize("),
    Kernel("loads of bytes", ELEMENT_FILE, "load<unsigned char>"),
    Kernel("stores of bytes", ELEMENT_FILE, "store<unsigned char>"),
    Kernel("maxima of bytes", ELEMENT_FILE, "maximum_u8("),
    Kernel("sums of pooling", ELEMENT_FILE, "accumulate_u8("),
    Kernel("averages", ELEMENT_FILE, "averages("),
    Kernel("softmax of bytes", ELEMENT_FILE, "softmax("),
    Kernel("lookup of 32-bit entries", ELEMENT_FILE, "look_up_wide("),
    Kernel("transposes of bytes", "movement/copy.cpp", "transpose<unsigned char>"),
    Kernel("transposes of 16 bits", "movement/copy.cpp", "transpose<unsigned short>"),
    Kernel("transposes of 32 bits", "movement/copy.cpp", "transpose<unsigned int>"),
    Kernel("batch norm", "float32/norm/channels.cpp", "BatchNormStep::pixel_of"),
    Kernel("local response normalization", "float32/norm/channels.cpp", "LrnStep::pixel_of"),
    Kernel("channel statistics of floats", "float32/statistics/statistics_scalar.cpp", "summarize_with_stride<1>"),
    Kernel("covariance of bytes", "int8/statistics/products_scalar.cpp", "add(unsigned int const*"),
)
"""Loops without instructions written for AArch64."""
HEADER = """\
# Instruction costs on AArch64

Made by `python -m tools.aarch64 costs` with {version}. No AArch64 machine was available for measurements. The
instructions are counted in the compiled loops. The cycles are estimates of llvm-mca for data in the first-level cache;
its model for apple-m1 describes an earlier Apple core. [Native engine](engine.md#aarch64) explains the instruction
sets.
"""
PRODUCT_TABLE = """
## Loops that multiply

The columns are the multiplications of an iteration, its instructions by kind, and the multiplications per instruction.
The columns of processors are multiplications per cycle.

| kernel | instruction set | products | multiplying | loads | others | products per instruction | {cpus} |
|---|---|---|---|---|---|---|{lines}|
"""
ELEMENT_TABLE = """
## Other loops

The columns of processors are cycles per 16 results.

| kernel | results | instructions | instructions per 16 results | {cpus} |
|---|---|---|---|{lines}|
"""
PORTABLE_TABLE = """
## Loops that the compiler vectorizes

These loops are portable code. Where the loop has no vector instructions, elements are processed one at a time.

| loop | file | instructions | vector instructions |
|---|---|---|---|
"""


def cycles(loop: Loop, cpu: str, program: str) -> float:
    """Estimate of llvm-mca for one iteration, in cycles."""
    attributes = "-mattr=+dotprod,+i8mm"
    command = [program, "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}", attributes, f"-iterations={ITERATIONS}"]
    text = "\n".join(re.sub(r"\.L\w+", ".Lloop", line) for line in loop.lines)
    done = subprocess.run(command, input=f".Lloop:\n{text}\n", capture_output=True, text=True, check=True)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert total is not None, done.stdout
    return int(total[1]) / ITERATIONS


def version_of(program: str) -> str:
    """Version of llvm-mca."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"LLVM version ([\d.]+)", text)
    return f"llvm-mca {found[1]}" if found else "llvm-mca"


def _is_supported(kernel: Kernel, cpu: str) -> bool:
    return cpu not in FEATURES.get(kernel.isa, set())


def product_row(kernel: Kernel, program: str) -> str:
    """Row of the first table."""
    loop = main_loop(kernel.source, kernel.function)
    loads = loop.count("ld")
    multiplying = loop.count("sdot", "usdot", "usmmla", "smlal", "fmla")
    rates = [f"{loop.products / cycles(loop, cpu, program):.1f}" if _is_supported(kernel, cpu) else "-" for cpu in CPUS]
    size = len(loop.lines)
    cells = [kernel.title, kernel.isa, loop.products, multiplying, loads, size - multiplying - loads]
    return "| " + " | ".join([*map(str, cells), f"{loop.products / size:.1f}", *rates]) + " |\n"


def element_row(kernel: Kernel, program: str) -> str:
    """Row of the second table."""
    loop = main_loop(kernel.source, kernel.function)
    share = 16 / kernel.results
    rates = [f"{cycles(loop, cpu, program) * share:.1f}" for cpu in CPUS]
    size = len(loop.lines)
    return f"| {kernel.title} | {kernel.results} | {size} | {size * share:.0f} | " + " | ".join(rates) + " |\n"


def portable_row(kernel: Kernel) -> str:
    """Row of the third table."""
    loop = widest_loop(kernel.source, kernel.function)
    return f"| {kernel.title} | `{kernel.source}` | {len(loop.lines)} | {loop.vector_instructions} |\n"


def page(program: str) -> str:
    """Text of the page."""
    columns = {"cpus": " | ".join(CPUS), "lines": "|".join("---" for _ in CPUS)}
    return (
        HEADER.format(version=version_of(program))
        + PRODUCT_TABLE.format(**columns)
        + "".join(product_row(kernel, program) for kernel in PRODUCTS)
        + ELEMENT_TABLE.format(**columns)
        + "".join(element_row(kernel, program) for kernel in ELEMENTS)
        + PORTABLE_TABLE
        + "".join(portable_row(kernel) for kernel in PORTABLE)
    )


def write_page(program: str, *, check: bool) -> int:
    """Write the page, or print whether it is out of date, and return the exit code."""
    text = replace_part(PAGE, "costs", "tools.aarch64 costs", page(program))
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is out of date: run python -m tools.aarch64 costs")
        return 1
    return 0
