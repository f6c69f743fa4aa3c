"""The seed of tests and campaigns that draw other cases in each run."""

import os
import secrets

VARIABLE = "TPUCONVERT_TEST_SEED"


def fresh_seed() -> int:
    """Return the seed in ``TPUCONVERT_TEST_SEED``, or a random one below 2^31; print it."""
    named = os.environ.get(VARIABLE)
    seed = secrets.randbelow(2**31) if named is None else int(named)
    print(f"seed {seed}: {VARIABLE}={seed} repeats it", flush=True)
    return seed
