"""Generate tokens with the compiled parts of a decoder in the vendor's chip simulator, after compile.sh.

A copy of this file is part of the export of a decoder. It needs no package of tpuconvert.

    PYTHON generate.py TOKENS COUNT [LOGITS.npy]

TOKENS are the ids of the prompt, such as 1,2,3. COUNT is the number of tokens to generate: each is the one with the
largest logit. PYTHON is the interpreter that has tpu_mlir installed; TPU_MLIR_HOME is the folder of that package.
LOGITS.npy gets the logits [COUNT, vocabulary].
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
try:
    MANIFEST = json.loads((FOLDER / "export.json").read_text(encoding="utf-8"))
    DECODER = MANIFEST["decoder"]
    sys.path.insert(0, str(FOLDER / MANIFEST["programs"][0]))
except (OSError, ValueError, LookupError, TypeError) as error:
    print(f"generate.py: {FOLDER / 'export.json'} cannot be read, export the model again: {error}", file=sys.stderr)
    sys.exit(2)
from run_bmodel import device_array, fail, find_output, start_with_simulator, with_numbers  # type: ignore[import-not-found]  # noqa: E402


class Part:
    """A compiled part.

    Args:
        description: its entry in the manifest.
        network: the vendor's object.
    """

    def __init__(self, description: dict[str, Any], network: Any) -> None:
        self.description = description
        self._network = network

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """Run the part with feeds by input name, in the types of the device. Return outputs in these types."""
        names = {tensor["device_name"]: tensor["name"] for tensor in self.description["inputs"]}
        for tensor in self._network.inputs:
            tensor.data.reshape(-1)[:] = feeds[names[tensor.name]].reshape(-1)
        self._network.forward()
        outputs = {tensor.name: np.array(tensor.data) for tensor in self._network.outputs}
        results = {}
        for output in self.description["outputs"]:
            array = find_output(outputs, output["device_name"])
            if array is None:
                fail(f"{self.description['name']} returns no '{output['device_name']}'; compile it again")
            results[output["name"]] = array.reshape(output["shape"])
        return results


class Decoder:
    """All parts, and the caches on the host.

    Args:
        model: the vendor's object for the combined parts.
    """

    def __init__(self, model: Any) -> None:
        self.context = DECODER["context"]
        self._model = model  # its networks do not keep it alive
        self.parts = {part["name"]: Part(part, model.Net(part["name"])) for part in DECODER["parts"]}
        self.histories: dict[str, Any] = {}

    def run(self, form: str, ids: Any, positions: Any, visible: Any) -> Any:
        """Run the parts of a prompt or of a token in order, and append to the caches. Return the hidden states.

        Args:
            form: ``prefill`` or ``decode``.
            ids: tokens.
            positions: their positions.
            visible: True for each key that a query attends to.
        """
        mask = np.where(visible, DECODER["mask"]["visible"], DECODER["mask"]["hidden"])
        hidden, appended = ids, dict[str, Any]()
        for name in DECODER[form]:
            part = self.parts[name]
            numbers = {"input_ids": ids, "position_ids": positions, "attention_mask": mask}
            types = {tensor["name"]: tensor["device_dtype"] for tensor in part.description["inputs"]}
            feeds = {key: device_array(array, types[key]) for key, array in numbers.items() if key in types}
            caches = part.description["caches"]
            feeds |= {cache["input"]: self.histories[cache["source"]] for cache in caches if cache["input"]}
            results = part.run({**feeds, "input_states": hidden})
            hidden = results["hidden_states"]
            appended |= {cache["source"]: results[cache["output"]] for cache in caches}
        self._append(appended, positions)
        return hidden

    def _append(self, entries: dict[str, Any], positions: Any) -> None:
        """Write entries of the caches at their positions. The entries of a prompt are whole caches."""
        for source, array in entries.items():
            history = self.histories.setdefault(source, np.zeros_like(array))
            np.moveaxis(history, DECODER["cache_axis"], 0)[positions[0]] = np.moveaxis(array, DECODER["cache_axis"], 0)

    def logits(self, state: Any) -> Any:
        """Return the logits of the token after a hidden state [1, 1, width]."""
        head = self.parts[DECODER["head"]]
        (output,) = head.description["outputs"]
        return with_numbers(head.run({"input_states": state})[output["name"]], output).reshape(-1)

    def generate(self, prompt: list[int], count: int) -> tuple[list[int], Any]:
        """Return the generated tokens and the logits from which they were chosen."""
        positions = np.arange(self.context)
        ids = np.zeros((1, self.context), np.int32)
        ids[0, : len(prompt)] = prompt
        hidden = self.run("prefill", ids, positions[None], (positions <= positions[:, None])[None, None])
        state = hidden[:, len(prompt) - 1 : len(prompt)]
        keys, rows = np.arange(self.context + 1), [self.logits(state)]
        tokens = [int(rows[0].argmax())]
        while len(tokens) < count:
            position = len(prompt) + len(tokens) - 1
            visible = ((keys < position) | (keys == self.context))[None, None, None]
            hidden = self.run("decode", np.array([[tokens[-1]]], np.int32), np.array([[position]]), visible)
            rows.append(self.logits(hidden))
            tokens.append(int(rows[-1].argmax()))
        return tokens, np.stack(rows)


def main() -> None:
    """Generate tokens and print them."""
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        prompt, count = [int(token) for token in sys.argv[1].split(",")], int(sys.argv[2])
    except ValueError:
        fail("expected ids of tokens such as 1,2,3 and a number of tokens")
    if count < 1 or len(prompt) + count - 1 > DECODER["context"]:
        fail(f"{len(prompt)} tokens and {count} generated ones exceed the context of {DECODER['context']} tokens")
    program = FOLDER / f"{MANIFEST['name']}.bmodel"
    if not program.is_file():
        fail(f"there is no {program.name}; run compile.sh first")
    home = os.environ.get("TPU_MLIR_HOME", "")
    if "SIMULATOR_FOLDER" not in os.environ:
        sys.exit(start_with_simulator(home, MANIFEST["chip"]))
    sys.path.insert(0, f"{home}/python")
    import pyruntime_bm  # type: ignore[import-not-found]  # the vendor's

    tokens, logits = Decoder(pyruntime_bm.Model(str(program), 0, "")).generate(prompt, count)
    print("tokens", ",".join(map(str, tokens)))
    if len(sys.argv) > 3:
        np.save(sys.argv[3], logits)
    sys.stdout.flush()
    os._exit(0)  # exit without unloading the runtime, which may crash


if __name__ == "__main__":
    main()
