"""The table of kernels: matchers name existing kernels, and every kernel is used by a matcher."""

import subprocess
import sys
from collections import defaultdict

import pytest

from tests.support.native_cases import KINDS, make
from tpuconvert.runtime.native.builder.builder import Builder
from tpuconvert.runtime.native.builder.loader import available_isas, extension, kernels
from tpuconvert.runtime.native.matchers import matcher as groups
from tpuconvert.runtime.native.plan import NativePlan
from tpuconvert.schema.definition.op import all_ops

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SEEDS = 12
"""Cases per kind whose steps are compared with the table."""
LAYOUT = "copy"
"""The kernel that any group may use to change the memory order of an operand."""


def test_matchers_name_kernels_that_exist():
    unknown = {entry.function.__name__: set(entry.kernels) - set(kernels()) for entry in groups.matchers()}
    assert not any(unknown.values()), {name: names for name, names in unknown.items() if names}


def test_every_kernel_is_named_by_a_matcher():
    named = {name for entry in groups.matchers() for name in entry.kernels}
    assert sorted(set(kernels()) - named) == [], "dead code: no matcher uses these kernels"


def test_matchers_name_operators_that_exist():
    known = set(all_ops())
    assert sorted({name for entry in groups.matchers() for name in entry.operators} - known) == []


def test_every_kernel_has_a_scalar_implementation():
    assert [name for name, isas in kernels().items() if isas[0] != "scalar"] == []
    assert {isa for isas in kernels().values() for isa in isas} >= set(available_isas())


def used_kernels(monkeypatch):
    """Kernels of the steps that each matcher's groups add, over cases of every kind."""
    used = defaultdict(set)
    current = [None]
    entries = {entry.function: entry for entry in groups.matchers()}
    matcher_of = {}
    step, emit = Builder.step, Builder.emit

    def wrap(matcher):
        def match(node, site):
            group = matcher(node, site)
            if group is not None:
                matcher_of[group.nodes] = entries[matcher]
            return group

        return match

    def recorded_step(self, kernel, spec, reads, writes):
        if current[0] is not None:
            used[current[0].function].add(kernel)
        step(self, kernel, spec, reads, writes)

    def recorded_emit(self, group):
        before, current[0] = current[0], matcher_of.get(group.nodes, current[0])
        emit(self, group)
        current[0] = before

    find = groups.matchers_of
    monkeypatch.setattr(groups, "matchers_of", lambda *args: tuple(wrap(matcher) for matcher in find(*args)))
    monkeypatch.setattr(Builder, "step", recorded_step)
    monkeypatch.setattr(Builder, "emit", recorded_emit)
    for kind in KINDS:
        for seed in range(SEEDS):
            case, current[0] = make(kind, seed), None
            NativePlan(case.graph, case.chip.name, available_isas()[seed % len(available_isas())], 1)
    return used


def test_groups_use_the_kernels_that_their_matcher_names(monkeypatch):
    used = used_kernels(monkeypatch)
    for entry in groups.matchers():
        name = f"{entry.function.__module__}.{entry.function.__name__}"
        assert used[entry.function] <= {*entry.kernels, LAYOUT}, f"{name}: declare these kernels"


def test_a_new_module_with_a_matcher_is_found(repository, tmp_path):
    """Adding one file to the package is enough."""
    (tmp_path / "example.py").write_text(
        "from tpuconvert.runtime.native.matchers.matcher import ends_with\n"
        "@ends_with('copy', kernels=('copy',), dtypes='all', conditions='an example', priority=99)\n"
        "def example(node, site):\n"
        "    return None\n"
    )
    code = (
        "import tpuconvert.runtime.native.matchers as package\n"
        f"package.__path__.append({str(tmp_path)!r})\n"
        "from tpuconvert.runtime.native.matchers import matcher\n"
        "print(matcher.matchers()[0].function.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "example", done.stderr
