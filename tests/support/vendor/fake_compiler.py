"""A package tpu_mlir whose compiler succeeds, fails, hangs or writes nothing, and whose simulator computes as told.

The compiler copies the module into its program; the simulator returns the expected results of the export, or others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tpuconvert.exporters.compilation.environment import Environment

COMPILER = """#!{python} -SE
import json, os, sys, time
home = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
plan = json.load(open(os.path.join(home, "plan.json")))
with open(os.path.join(home, "calls"), "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
source, target = sys.argv[2], sys.argv[sys.argv.index("-o") + 1]
text = open(source).read()
if "--strip-io-quant" in " ".join(sys.argv):
    text = "level 0\\n" + text
group = [argument for argument in sys.argv if argument.startswith("--layer-group=")]
if group:
    text = text.replace("level 0", "level " + group[0].split("opt=")[1].split()[0], 1)
codegen = [argument for argument in sys.argv if argument.startswith("--codegen=")]
level = int(text.split(maxsplit=2)[1])
if codegen and "embed_debug_info=True" in codegen[0]:
    if plan["profile"] == "fails":
        sys.exit("error: no space for a profile")
    lines = [{{"file-line": 7, "opcode": "tpu.Lut", "results": [{{"name": "a|b"}}]}}]
    with open(codegen[0].split("model_file=")[1].split()[0] + ".json", "w") as operations:
        json.dump(lines, operations)
    with open("compiler_profile_0.txt", "w") as profile:
        profile.write(plan["profile"])
elif codegen:
    if level in plan["hangs_at"]:
        open(os.path.join(home, "pid"), "w").write(str(os.getpid()))
        time.sleep(600)
    for name in plan["fails_at_tensors"]:
        if 'loc("%s")' % name in text:
            print("compiler.cpp:12: void lower(): Assertion `x > 0' failed.")
            print("bin/../lib/libbackend.so(api_conv_local+0x83e) [0x7f72a0aa510e]")
            sys.stdout.flush()
            os.kill(os.getpid(), 6)
    if level in plan["fails_at"]:
        sys.exit("error: layer group of level %d" % level)
if codegen:
    target = codegen[0].split("model_file=")[1].split()[0]
    if plan["writes_nothing"]:
        text = ""
open(target, "w").write(text)
"""

SIMULATOR = """
import json, os, sys
import numpy as np
home = os.environ["TPU_MLIR_HOME"]
plan = json.load(open(os.path.join(home, "plan.json")))


class Tensor:
    def __init__(self, name, data):
        self.name, self.data = name, data


class Net:
    def __init__(self, path):
        folder = os.path.dirname(path)
        self.level = int(open(path).read().split(maxsplit=2)[1])
        self.manifest = json.load(open(os.path.join(folder, "export.json")))
        self.expected = np.load(os.path.join(folder, "expected.npz"))
        inputs = np.load(os.path.join(folder, "inputs.npz"))
        self.inputs = [Tensor(name, np.zeros_like(inputs[name][0])) for name in inputs.files]
        self.count = 0

    def forward(self):
        if plan["simulator_crashes"]:
            os.abort()
        self.outputs = []
        for output in self.manifest["outputs"]:
            array = self.expected[output["name"]][self.count].copy()
            if self.level in plan["wrong_at"] or output["name"] in plan["wrong_tensors"]:
                array.reshape(-1)[0] += 3
            if output["name"] not in plan["not_returned"]:
                self.outputs.append(Tensor(output["device_name"], array))
        self.count += 1


class Model:
    networks = ["net"]

    def __init__(self, path, device, options):
        self.path = path

    def Net(self, name):
        return Net(self.path)
"""

PROFILE = """\
ENGINE_BD                                 ENGINE_GDMA
                                          Load_4|GDMA_TENSOR|s:0|b:0|g:1|e:19|t:20|dr:0|sz:4|bw:0.19
Lut_7|SG|s:20|b:1|g:1|e:29|t:10           Load_4|GDMA_TENSOR|s:20|b:0|g:2|e:24|t:5|dr:0|sz:4|bw:0.75
Lut_7|AR|s:30|b:2|g:2|e:30|t:1
--------------------------------------
API_END total_cycle:31|b:2|g:2
TCYC : 31
"""
"""Profile in the form of the vendor's: commands of two engines side by side."""

# run_bmodel.py starts itself again with the library of a simulator, unless the variable is set.
PYTHON = """#!/bin/sh
case "$2" in *version_info*) echo 3.10.0; exit 0;; esac
SIMULATOR_FOLDER=none OPENBLAS_NUM_THREADS=1 exec {python} "$@"
"""


def make_fake_compiler(
    home: Path,
    *,
    fails_at: Sequence[int] = (),
    hangs_at: Sequence[int] = (),
    wrong_at: Sequence[int] = (),
    fails_at_tensors: Sequence[str] = (),
    wrong_tensors: Sequence[str] = (),
    not_returned: Sequence[str] = (),
    writes_nothing: bool = False,
    simulator_crashes: bool = False,
    profile: str = PROFILE,
) -> Environment:
    """Write the package into a folder, and its interpreter beside it.

    Args:
        home: folder of the package.
        fails_at: levels of layer grouping at which the compiler prints an error.
        hangs_at: levels at which it does not end.
        wrong_at: levels at which the first element of each tensor is wrong.
        fails_at_tensors: tensors at which it aborts, if the program has one of them.
        wrong_tensors: tensors whose first element is wrong at every level.
        not_returned: tensors that the program does not return.
        writes_nothing: write an empty program.
        simulator_crashes: abort the simulator.
        profile: text of the profile with the cycles; "fails" to end with an error.
    """
    plan = {
        "fails_at": [*fails_at],
        "hangs_at": [*hangs_at],
        "wrong_at": [*wrong_at],
        "fails_at_tensors": [*fails_at_tensors],
        "wrong_tensors": [*wrong_tensors],
        "not_returned": [*not_returned],
        "writes_nothing": writes_nothing,
        "simulator_crashes": simulator_crashes,
        "profile": profile,
    }
    for folder in ("bin", "lib", "python"):
        (home / folder).mkdir(parents=True)
    (home / "plan.json").write_text(json.dumps(plan))
    (home / "python" / "pyruntime_bm.py").write_text(SIMULATOR)
    for chip in ("bm1684x", "bm1688", "bm1684"):
        (home / "lib" / f"libcmodel_{chip}.so").write_bytes(b"")
    environment = Environment(home, home.parent / "python3.10", "1.0")
    _write_program(environment.program, COMPILER.format(python=os.path.realpath(sys.executable)))
    _write_program(environment.python, PYTHON.format(python=sys.executable))
    return environment


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def calls_of(environment: Environment) -> list[list[str]]:
    """Return the arguments of each call of the compiler."""
    calls = environment.home / "calls"
    return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
