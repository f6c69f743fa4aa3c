"""Parts of a decoder as programs of the vendor's compiler, which tests/vendor compiles and runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tpuconvert as tc
from tests.support.networks.decoders import EXPLICIT, FORMS, STANDARD, decoder
from tests.support.sampled import sampled
from tpuconvert.conversion.options.options import group_options
from tpuconvert.exporters.decoder_check import compare_logits, run_whole
from tpuconvert.exporters.decoder_parts import part_model, split_decoder
from tpuconvert.exporters.tpu_mlir.package import SCRIPTS
from tpuconvert.exporters.tpu_mlir.run_bmodel import find_output
from tpuconvert.schema.errors import UsageError

CONTEXT, PROMPT, COUNT = 8, (1, 2, 3), 5

RUNTIME = '''
"""The vendor's runtime with sessions of tpuconvert: arrays of 16 bits as in the simulator."""
import json, os
import numpy as np
import tpuconvert as tc

FOLDER = os.environ["PARTS"]
DECODER = json.load(open(f"{FOLDER}/export.json"))["decoder"]


class Tensor:
    def __init__(self, item):
        self.name = item["device_name"]
        dtype = "uint16" if item["device_dtype"] == "bfloat16" else item["device_dtype"]
        self.data, self.item = np.zeros(item["shape"], dtype), item

    def numbers(self):
        if self.item["device_dtype"] == "bfloat16":
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        return self.data.astype(self.item["dtype"])


class Net:
    def __init__(self, name):
        part = next(part for part in DECODER["parts"] if part["name"] == name)
        self.inputs = [Tensor(item) for item in part["inputs"]]
        self.outputs = [Tensor(item) for item in part["outputs"]]
        self.session = tc.Session(tc.load(f"{FOLDER}/{name}.tpum"))

    def forward(self):
        results = self.session.run({tensor.item["name"]: tensor.numbers() for tensor in self.inputs})
        for tensor in self.outputs:
            array = results[tensor.item["name"]]
            if tensor.item["device_dtype"] == "bfloat16":
                array = array.astype(np.float32).view(np.uint32) >> 16  # truncated
            tensor.data[...] = array


class Model:
    def __init__(self, path, device, folder):
        assert os.path.exists(path)
        self.networks = [part["name"] for part in DECODER["parts"]]

    def Net(self, name):
        return Net(name)
'''


@pytest.mark.parametrize(("form", "floats"), list(zip(FORMS, ("f32", "f16", "bf16"), strict=True)))
def test_parts_have_caches_and_states_in_the_type(form: str, floats: str, tmp_path: Path) -> None:
    model = tc.convert(decoder(form))
    manifest = tc.export(model, tmp_path / "parts", chip="bm1688", floats=floats, decoder_context=CONTEXT).manifest
    dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[floats]
    parts = {part["name"]: part for part in manifest["decoder"]["parts"]}
    assert manifest["floats"] == floats and manifest["programs"] == list(parts)
    types = {tensor["name"]: tensor["device_dtype"] for tensor in parts["block_cache_1"]["inputs"]}
    assert types == {
        "input_states": dtype,
        "position_ids": "int32",
        "attention_mask": dtype,
        "history_k": dtype,
        "history_v": dtype,
    }
    assert {tensor["device_dtype"] for tensor in parts["block_0"]["outputs"]} == {dtype}
    assert [tensor["device_dtype"] for tensor in parts["lm_head"]["outputs"]] == ["float32"]
    text = (tmp_path / "parts" / "block_0" / "block_0.mlir").read_text()
    element = floats if floats != "f32" else "f32"
    assert f"%arg0: tensor<1x{CONTEXT}x64x{element}>" in text and "module @block_0 " in text
    own = json.loads((tmp_path / "parts" / "block_0" / "export.json").read_text())
    assert own["host_nodes"] == [] and own["samples"] == 1
    names = {path.name for path in (tmp_path / "parts").iterdir()} - {".files.json"}
    assert names == {*parts, "export.json", "compile.sh", "generate.py"}


def test_weights_stay_packed(tmp_path: Path) -> None:
    source = decoder(STANDARD, heads=8, hidden=256)
    model = tc.convert(source, **group_options(weight_type="int4"))
    tc.export(model, tmp_path / "parts", chip="bm1688", floats="f16", decoder_context=CONTEXT)
    weights = np.load(tmp_path / "parts" / "block_cache_0" / "block_cache_0_weights.npz")
    codes = [array for name, array in weights.items() if name.endswith("_codes")]
    assert len(codes) == 5 and {array.dtype for array in codes} == {np.dtype(np.uint8)}
    sizes = {array.size * 2 for array in codes}
    assert sizes == {128 * 128, 128 * 256}


@pytest.mark.parametrize("floats", sampled(["f32", "f16", "bf16"]))
def test_generate_chains_the_parts(floats: str, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    model = tc.convert(decoder(EXPLICIT))
    tc.export(model, folder, chip="bm1688", floats=floats, decoder_context=CONTEXT)
    for part in split_decoder(model, CONTEXT).all:
        part_model(model, part).save(folder / f"{part.name}.tpum")
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "pyruntime_bm.py").write_text(RUNTIME)
    name = json.loads((folder / "export.json").read_text())["name"]
    variables = {"TPU_MLIR_HOME": str(tmp_path), "SIMULATOR_FOLDER": str(tmp_path), "PARTS": str(folder)}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, folder / "generate.py", "1,2,3", str(COUNT), tmp_path / "logits.npy"]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)

    assert "run compile.sh first" in run().stderr
    (folder / f"{name}.bmodel").touch()
    done = run()
    assert done.returncode == 0, done.stderr
    tokens = tc.generate(model, tokens=PROMPT, max_new_tokens=COUNT).new_tokens
    assert done.stdout.splitlines()[-1] == f"tokens {','.join(map(str, tokens))}"
    whole = run_whole(model, [*PROMPT, *tokens[:-1]], len(PROMPT))
    check = compare_logits(np.load(tmp_path / "logits.npy"), whole, len(PROMPT))
    assert check.difference <= {"f32": 1e-5, "f16": 2e-3, "bf16": 3e-2}[floats]  # rounded between the parts only


def test_outputs_of_fused_operations_have_the_names_of_both() -> None:
    results = {"permute.2_past_v": 1, "past_k_f32": 2, "v": 3}
    assert [find_output(results, name) for name in ("past_v", "past_k", "v", "k")] == [1, 2, 3, None]


def test_bm1684_has_no_packed_weights(tmp_path: Path) -> None:
    model = tc.convert(decoder(STANDARD), chip="bm1684")
    with pytest.raises(UsageError, match="neither packed weights nor the lookup"):
        tc.export(model, tmp_path / "parts", chip="bm1684", decoder_context=CONTEXT)
    assert not (tmp_path / "parts").exists()


def test_the_next_step_compiles_all_parts(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    text = str(tc.export(tc.convert(decoder(STANDARD)), folder, chip="bm1688", decoder_context=CONTEXT))
    compiling, generating = text.splitlines()[-2:]
    assert compiling.startswith("next: ") and compiling.endswith(f" {folder / 'compile.sh'}")
    assert generating.startswith("then: ") and generating.endswith(f"/bin/python {folder / 'generate.py'} 1,2,3 8")
    done = subprocess.run(
        [folder / "compile.sh"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "TPU_MLIR_HOME" in done.stderr


@pytest.mark.parametrize("content", sampled(["", "[]", "{}", '{"decoder": {}, "programs": []}'], every=2))
def test_a_damaged_manifest_is_named(content, tmp_path):
    shutil.copy(SCRIPTS / "generate.py", tmp_path)
    (tmp_path / "export.json").write_text(content)
    done = subprocess.run(
        [sys.executable, tmp_path / "generate.py", "1", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "export the model again" in done.stderr and "Traceback" not in done.stderr
