"""CPU time per token of the exports of one decoder, which compute the same tokens from other inputs."""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import tpuconvert as tc
from tools.zoo.decoders.decoder_cases import PROMPT, Case

TOKENS, ROUNDS = 16, 5


def print_times(folder: Path, chosen: Sequence[Case]) -> None:
    """Print the median CPU time of a token for each export, and its ratio to the first one.

    The exports run in turns in one process, on one thread. Each continues a prompt in every round.
    """
    times: dict[Case, list[float]] = {case: [] for case in chosen}
    prompt = np.arange(3, 3 + PROMPT)[None]
    with ExitStack() as stack:
        sessions = {case: stack.enter_context(tc.Session(tc.convert(case.path(folder)), threads=1)) for case in chosen}
        reasons = {case: session.replanning or "-" for case, session in sessions.items()}
        for number in range(ROUNDS + 1):
            for case, session in sessions.items():
                session.reset()
                session.run({"input_ids": prompt})
                seconds = []
                for token in range(TOKENS):
                    start = time.process_time()
                    session.run({"input_ids": np.array([[3 + token]])})
                    seconds.append(time.process_time() - start)
                if number:  # the first round warms up
                    times[case].append(statistics.median(seconds))
    print("| export | ms of CPU per token | ratio to the first | a plan per length because |\n|---|---|---|---|")
    first = times[chosen[0]]
    for case, own in times.items():
        ratio = statistics.median(a / b for a, b in zip(own, first, strict=True))
        print(f"| {case.name} | {statistics.median(own) * 1e3:.3f} | {ratio:.3f} | {reasons[case]} |")
