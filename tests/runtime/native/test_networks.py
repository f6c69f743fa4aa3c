"""Every model of the data set on both backends: integers, and floats that come straight from integers, are identical.

Results of float sums and functions may differ by 1e-4 of the largest magnitude of the output: binary32 sums in another
order, some of them over a hundred layers.
"""

from collections import Counter

import pytest

import tpuconvert as tc
from tests.support.native_cases.comparison import difference, exact_values
from tests.support.networks.data_models import convert_model, is_quantized, names
from tools.accuracy.datasets import entries
from tpuconvert.runtime.native.builder.loader import extension
from tpuconvert.runtime.reference.profile import REFERENCE
from tpuconvert.schema.graph.graph import Value

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

SAMPLE = (
    ("cifar10_resnet8_int8_tflite", "bm1686", "source"),
    ("kws_dscnn_int8_tflite", "bm1686", "source"),
    ("mnist_conv_tflite", "bm1684", "int8"),
    ("cifar10_resnet8_onnx", "bm1686", "int8"),
    ("cifar10_resnet8_onnx", "bm1686", "float"),
)


def compare(root, name: str, chip: str, how: str) -> None:
    model, samples = convert_model(root, name, chip, how)
    exact = exact_values(model.graph)
    by_name = {port.name: value for port, value in zip(model.graph.output_ports, model.graph.outputs, strict=True)}
    reference = tc.Session(model, backend="reference")
    native = [tc.Session(model, backend="native", threads=threads) for threads in (1, 2)]
    for feeds in samples:
        expected = reference.run(feeds)
        for session in native:
            found = session.run(feeds)
            for output, want in expected.items():
                value: Value = by_name[output]
                problem = difference(found[output], want, value in exact)
                assert not problem, f"{name} {chip} {how}, output '{output}': {problem}"
    left = Counter(node.op.name for node in model.graph.nodes if node.name in set(native[0].reference_nodes))
    total = sum(step.seconds for step in native[0].profile(samples[0]))
    slow = sum(step.seconds for step in native[0].profile(samples[0]) if step.kind == REFERENCE)
    memory = native[0].memory
    share, arena, bound = 100 * slow / total, memory["arena"], memory["arena_lower_bound"]
    print(
        f"\n{name} {chip} {how}: {len(model.graph)} nodes, references {dict(left)} ({share:.0f} % of the time),"
        f" arena {arena} of at least {bound} bytes"
    )


@pytest.mark.parametrize(("name", "chip", "how"), SAMPLE)
def test_sample(name, chip, how, data_root):
    compare(data_root, name, chip, how)


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["bm1686", "bm1684"])
@pytest.mark.parametrize("name", names())
def test_quantized(name, chip, data_root):
    """Sources that are quantized as they are, others by post-training quantization."""
    compare(data_root, name, chip, "source" if is_quantized(entries(data_root)[name]) else "int8")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_float(name, data_root):
    if is_quantized(entries(data_root)[name]):
        pytest.skip("the source is quantized")
    compare(data_root, name, "bm1686", "float")
