"""Runs in the emulated Python: compare cases with given bytes on every instruction set of the emulated processor.

    emulated_cases.py CASES.pickle RESULT.json [THREADS ...]

The pickle is a list of (case, results of the host). The result has the instruction sets, the number of comparisons, the
kernels that ran, and descriptions of the differences.
"""

import json
import pickle
import sys
from pathlib import Path

from tests.support.native_cases.comparison import difference, evaluator, exact_values, steps_of
from tpuconvert.runtime.native.builder.loader import available_isas
from tpuconvert.runtime.native.plan import NativePlan


def problems_of(case, host, isa, threads):
    """Descriptions of the differences of one case: to the references, and to the bytes of the host."""
    plan = NativePlan(case.graph, case.chip.name, isa, threads)
    left = sorted({node.op.name for node in plan.reference_nodes})
    found = [f"{left} ran as references"] if case.has_kernels and left else []
    results = plan.run(case.feeds, evaluator(case.chip))
    exact = exact_values(case.graph)
    for value, result, expected, same in zip(case.graph.outputs, results, case.expected, host, strict=True):
        problem = difference(result, expected, value in exact) or difference(result, same, exact=True)
        if problem:
            found.append(f"{isa}, {threads} threads, '{value.name}': {problem}; steps {steps_of(plan)}; {case}")
    return found, plan.kernels


def main():
    cases, target = sys.argv[1:3]
    threads = [int(word) for word in sys.argv[3:]] or [1]
    problems, kernels, count = [], set(), 0
    for case, host in pickle.loads(Path(cases).read_bytes()):
        for isa in available_isas():
            for number in threads:
                found, used = problems_of(case, host, isa, number)
                problems += found
                kernels |= set(used)
                count += 1
    summary = {"isas": available_isas(), "count": count, "kernels": sorted(kernels), "problems": problems}
    Path(target).write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
