"""Passes of the vendor's compiler that turn a module of the ``tpu`` dialect into a compiled program.

``compile.sh`` of an export and ``export --compile`` run the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

SHELL_LEVEL = "LAYER_GROUP_OPT"
"""Variable of ``compile.sh`` with the level of layer grouping."""

_STRIP = (
    "strip-io-quant=quant_input=False quant_output=False quant_input_list= quant_output_list= "
    "quant_output_bf16=False quant_input_int8=False quant_output_int8=False"
)
_GROUP = (
    "layer-group=opt={level} group_by_cores=auto compress_mode=none debugger=0 disable_group_overlap=false "
    "lgcache=false config_filename= enable_lghash=False lghash_dir="
)
_CODEGEN = (
    "codegen=model_file={name}.bmodel embed_debug_info={profile} model_version=latest bmodel_only={alone} "
    "gdma_check=False rvti=False"
)
_BEFORE_GROUPS = ("dev-parallel", "weight-reorder", "subnet-divide=dynamic=False", "op-reorder", "topo-sort")
_AFTER_GROUPS = ("core-parallel", "after-layergroup-weight-reorder", "address-assign")


@dataclass(frozen=True)
class CompilerPass:
    """One run of the program ``tpuc-opt``. File names are relative to the working folder.

    Args:
        title: what it does, for progress.
        source: file to read.
        options: its options, without their dashes.
        target: file to write.
    """

    title: str
    source: str
    options: tuple[str, ...]
    target: str

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program."""
        return [self.source, *(f"--{option}" for option in self.options), "-o", self.target]


def compiler_passes(name: str, level: int | str) -> list[CompilerPass]:
    """Return the passes that compile ``NAME.mlir`` to ``NAME.bmodel``.

    Args:
        name: symbol name of the module. No module is named step-1: a name is an identifier.
        level: level of layer grouping; 0 compiles each layer alone, without that pass.
    """
    groups = () if level == 0 else (_GROUP.format(level=level),)
    return [
        CompilerPass("optimize", f"{name}.mlir", (_STRIP, "processor-tpu-optimize"), "step-1.mlir"),
        CompilerPass("group layers", "step-1.mlir", (*_BEFORE_GROUPS, *groups, *_AFTER_GROUPS), "step-2.mlir"),
        CompilerPass(
            "generate code", "step-2.mlir", (_CODEGEN.format(name=name, profile=False, alone=True),), "/dev/null"
        ),
    ]


def profile_pass(name: str) -> CompilerPass:
    """Return the pass that writes the profile of a compiled program, ``NAME.bmodel.json``, and another NAME.bmodel."""
    options = _CODEGEN.format(name=name, profile=True, alone=False)
    return CompilerPass("estimate cycles", "step-2.mlir", (options,), "/dev/null")


def shell_passes() -> str:
    """Return the lines of ``compile.sh`` that run the passes of the module ``$name``."""
    lines = []
    for compiler_pass in compiler_passes("$name", f"${SHELL_LEVEL}"):
        words = [_shell_word(argument) for argument in compiler_pass.arguments]
        lines.append(f"run_pass {' '.join(words)}")
    return "\n".join(lines)


def _shell_word(argument: str) -> str:
    """Return an argument for the shell. The one with the level is left out if the variable is empty."""
    quoted = f'"{argument}"' if {" ", "$"} & set(argument) else argument
    return f"${{{SHELL_LEVEL}:+{quoted}}}" if f"${SHELL_LEVEL}" in argument else quoted
