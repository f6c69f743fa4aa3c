"""Damaged networks and weight files, 2,000 at night: each gives a valid graph, or one of our errors."""

import random
import re

import pytest

import tpuconvert as tc
from tests.support.caffe.networks import layer, weights_message, with_input, write_text
from tests.support.caffe.opencv_cases import CASES
from tests.support.sampled import sampled
from tpuconvert.frontends import caffe
from tpuconvert.schema.system.limits import Limits

LIMITS = Limits(max_tensor_elements=1 << 24, max_expansion_bytes=1 << 24, max_unrolled_nodes=2000)
"""Small, so that a mutated extent cannot make a test slow."""

RECURRENT = (
    with_input((3, 2, 4), "")
    + with_input((3, 2), "").replace('"x"', '"c"')
    + layer("LSTM", "recurrent_param { num_output: 3 }", "x c")
)
REGIONS = (
    with_input((1, 12, 4, 4), "")
    + with_input((1, 24, 4, 4), "").replace('"x"', '"d"')
    + with_input((1, 3), "").replace('"x"', '"i"')
    + layer("Proposal", "proposal_param { ratio: 1 ratio: 2 scale: 1 scale: 2 scale: 4 }", "x d i", "r", "p")
    + layer("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.5 }", "x r")
)
SEEDS = [case.text for case in CASES] + [RECURRENT, REGIONS]
NUMBERS = ("0", "-1", "1", "2147483647", "-2147483648", "4294967295", "9" * 30, "1e39", "nan", "-inf", "0.5", "true")
BATCH = 250
"""Mutations per test: one on texts and one on weights, four of each at night."""


def mutated_text(text, chance):
    """One or more of: another number, a token lost, twice or elsewhere, a cut, a byte of anything."""
    tokens = re.findall(r'"[^"]*"|[\w.+-]+|\s+|.', text)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        place = chance.randrange(len(tokens))
        kind = chance.randrange(7)
        if kind == 0:
            numbers = [k for k, token in enumerate(tokens) if re.fullmatch(r"[-\d.]+", token)]
            tokens[chance.choice(numbers or [place])] = chance.choice(NUMBERS)
        elif kind == 1:
            del tokens[place]
        elif kind == 2:
            tokens.insert(place, tokens[chance.randrange(len(tokens))])
        elif kind == 3:
            other = chance.randrange(len(tokens))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind == 4:
            del tokens[place:]
        elif kind == 5:
            tokens[place] = chr(chance.randrange(256)) + tokens[place]
        else:
            names = [k for k, token in enumerate(tokens) if token.startswith('"')]
            tokens[chance.choice(names or [place])] = '"' + chance.choice(["x0", "y", "", "Pooling", "LSTM"]) + '"'
        if not tokens:
            return ""
    return "".join(tokens)


def mutated_bytes(content, chance):
    """Bits, bytes, lengths and ends."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        place = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(5)
        if not data or kind == 0:
            data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
        elif kind == 1:
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            data[place] = chance.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == 3:
            del data[place : place + chance.randrange(1, 20)]
        else:
            del data[place:]
    return bytes(data)


def load(text_file, weights_file):
    """Read both: a graph is consistent, damage raises an error of this package that is not an internal one."""
    try:
        graph = caffe.load(text_file, weights_file, limits=LIMITS, require_weights=weights_file is not None)
    except tc.InternalError:
        raise
    except tc.TpuConvertError:
        return
    graph.validate()


@pytest.mark.parametrize("batch", sampled(range(4)))
def test_networks(tmp_path, batch):
    chance = random.Random(batch)
    for number in range(BATCH):
        text = mutated_text(chance.choice(SEEDS), chance)
        try:
            load(write_text(tmp_path, text), None)
        except Exception as error:
            raise AssertionError(f"batch {batch}, number {number}:\n{text}") from error


@pytest.mark.parametrize("batch", sampled(range(4)))
def test_weights(tmp_path, batch):
    chance = random.Random(1000 + batch)
    with_blobs = [case for case in CASES if case.blobs]
    path = tmp_path / "net.caffemodel"
    for number in range(BATCH):
        case = chance.choice(with_blobs)
        content = mutated_bytes(weights_message(case.arrays()[1]).SerializeToString(), chance)
        path.write_bytes(content)
        try:
            load(write_text(tmp_path, case.text), path)
        except Exception as error:
            raise AssertionError(f"batch {batch}, number {number}, {case.id}: {content.hex()}") from error
