"""Byte ranges that steps declare, and the checks of a program.

Buffers of the caller have no slack: a step that loads whole registers declares it and is refused there. A build with
sanitizers aborts if a step reads slack without declaring it.
"""

import numpy as np
import pytest

from tests.support.native_cases import KINDS, make
from tests.support.native_cases.comparison import evaluator
from tests.support.native_cases.recorded_calls import made, record, run_alone
from tpuconvert.runtime.native.builder.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

MOST_BYTES = 1 << 16
QUANTIZATION = {"scale": 1.0, "offset": 0, "low": 0, "high": 255}
BUFFERS = [("arena", 0, 64), ("arena", 128, 64), ("external", 0, 64)]


def program(step, buffers=BUFFERS, constants=(), arena=256):
    return native().Program(steps=[step], buffers=buffers, constants=list(constants), arena_bytes=arena, threads=1)


def copy_step(source=(0, 0), target=(1, 0), itemsize=1):
    module = native()
    return copy_of(module.Place(*source), module.Place(*target), itemsize)


def copy_of(source, target, itemsize):
    """The step that copies four elements."""
    module, strides = native(), [itemsize]
    spec = module.CopySpec(
        source=source, target=target, shape=[4], source_strides=strides, target_strides=strides, itemsize=itemsize
    )
    return module.copy(spec, "scalar")


def norm_quantize(x, y, **given):
    """The step that normalizes and quantizes one row of four elements."""
    module = native()
    spec = module.NormQuantizeSpec(
        x=x, output=y, rows=1, count=4, epsilon=1e-5, quantization=module.ByteQuantization(**QUANTIZATION), **given
    )
    return module.norm_quantize(spec, "scalar")


def matmul_spec(left, right, output, item, epilogue):
    """Describe the product of two 4x4 matrices."""
    batch = {"batch": (), "left_batch": (), "right_batch": (), "output_batch": ()}
    strides = {"left_row": 4, "right_row": 4, "right_column": 1, "output_row": 4 * item}
    module = native()
    return module.MatmulInt8Spec(
        left=left,
        right=right,
        output=output,
        rows=4,
        depth=4,
        columns=4,
        epilogue=module.Epilogue(epilogue, 4),
        **batch,
        **strides,
    )


def refusal_of(module, step, sizes):
    """Return why a step is refused on these buffers, or an empty string if it ran."""
    try:
        run_alone(module, step, sizes, 1)
    except ValueError as error:
        return str(error)
    except IndexError:  # indices are arbitrary memory contents
        return ""
    return ""


# Reads past the end


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_step_keeps_to_what_it_says(kind, monkeypatch):
    """With one buffer after the other as an array that ends with it, a step is refused, or stays inside."""
    module, rng = native(), np.random.default_rng(0)
    for seed in range(len(available_isas())):
        steps, sizes = record(kind, seed, monkeypatch)
        if sum(size for _, size in sizes) > MOST_BYTES:
            continue
        for step in (made(call, module, None, rng) for call in steps):
            for index, (_, size) in enumerate(sizes):
                outside = [*sizes[:index], ("external", size), *sizes[index + 1 :]]
                refusal = refusal_of(module, step, outside)
                assert not refusal or f"may read past the end of buffer {index}, which is the caller's" in refusal, seed


@pytest.mark.parametrize(
    ("kind", "name", "operands"),
    [
        ("conv_v2", "ConvInt8Spec", ["input"]),
        ("conv_v2_depthwise", "ConvInt8Spec", ["input"]),
        ("matrix_mul_modes", "ConvInt8Spec", ["input"]),
        ("matrix_mul_v2_two_operands", "MatmulInt8Spec", ["left", "right"]),
    ],
)
def test_steps_that_load_whole_registers_are_refused_on_buffers_of_callers(kind, name, operands, monkeypatch):
    module, rng = native(), np.random.default_rng(0)
    found = 0
    for seed in range(8):
        steps, sizes = record(kind, seed, monkeypatch)
        for step in steps:
            call = next((item for item in step.arguments if getattr(item, "name", "") == name), None)
            for operand in operands if call else ():
                index = call.named[operand].arguments[0]
                outside = [*sizes[:index], ("external", sizes[index][1]), *sizes[index + 1 :]]
                with pytest.raises(
                    ValueError, match=rf"step 0 \(.*\) may read past the end of buffer {index}, which is the"
                ):
                    run_alone(module, made(step, module, None, rng), outside, 1)
                found += 1
    assert found


def test_fused_steps_of_transformers_are_refused_there_too():
    module = native()
    place = module.Place
    buffers = [("external", 0, 64), ("arena", 0, 64), ("arena", 128, 64), ("arena", 256, 64)]

    def check_refused(step, buffer):
        with pytest.raises(ValueError, match=f"may read past the end of buffer {buffer}"):
            program(step, [*buffers[1 : 1 + buffer], buffers[0], *buffers[1 + buffer :]], arena=384)

    check_refused(norm_quantize(place(0), place(1)), 0)
    check_refused(norm_quantize(place(1), place(2), residual=place(0)), 0)
    floats = module.EpilogueSpec(low=-65536, high=65536, bytes=4, dequantize=(0, 1.0))
    spec = module.AttentionInt8Spec(
        scores=matmul_spec(place(0), place(1), place(3), 4, floats),
        probabilities=module.ByteQuantization(**QUANTIZATION),
        values=matmul_spec(place(3), place(2), place(3), 1, module.EpilogueSpec()),
    )
    for operand in range(3):
        check_refused(module.attention_int8(spec, "scalar"), operand)


def test_constants_without_slack_are_for_steps_that_need_none():
    module = native()
    place = module.Place
    buffers = [("constant", 0, 64), ("arena", 0, 64)]
    program(copy_step(), buffers, [np.zeros(64, np.uint8)])
    norm = norm_quantize(place(0), place(1))
    program(norm, buffers, [np.zeros(128, np.uint8)])
    with pytest.raises(ValueError, match="may read past the end of buffer 0, which has no slack"):
        program(norm, buffers, [np.zeros(127, np.uint8)])
    with pytest.raises(ValueError, match="a constant is smaller than its buffer"):
        program(copy_step(), buffers, [np.zeros(63, np.uint8)])


# Alignment


def steps_with_elements():
    """Steps by the size of an element, as functions of their operands and results."""
    module = native()
    place = module.Place

    def elements(source, target, kind, item):
        tensors = [module.ElementTensor(place=at, type=kind, strides=[item]) for at in (source, target)]
        return elementwise([4], *tensors, available_isas()[-1])

    def gather(source, target, item):
        spec = module.GatherSpec(source=source, target=target, outer=1, extent=4, inner_bytes=item, indices=[1, 0])
        return module.gather(spec, "scalar")

    def index_select(source, target, item):
        sizes = {"outer": 1, "extent": 4, "inner_bytes": item, "count": 4}
        return module.index_select(
            module.IndexSelectSpec(source=source, indices=place(2), target=target, **sizes), "scalar"
        )

    def softmax(source, target):
        return module.softmax_float32(module.SoftmaxFloatSpec(x=source, y=target, rows=1, count=4), "scalar")

    def chain(source, target):
        ops = [("abs", -1, 0.0, 0.0)]
        spec = module.ChainFloatSpec(output=target, shape=[4], operands=[(source, [4])], ops=ops)
        return module.chain_float32(spec, "scalar")

    return [
        ("copy", 2, lambda s, t: copy_of(s, t, 2)),
        ("copy", 4, lambda s, t: copy_of(s, t, 4)),
        ("gather", 2, lambda s, t: gather(s, t, 2)),
        ("gather", 4, lambda s, t: gather(s, t, 4)),
        ("index_select", 2, lambda s, t: index_select(s, t, 2)),
        ("index_select", 4, lambda s, t: index_select(s, t, 4)),
        ("elementwise_int", 2, lambda s, t: elements(s, t, "i16", 2)),
        ("elementwise_int", 4, lambda s, t: elements(s, t, "32", 4)),
        ("softmax_float32", 4, softmax),
        ("chain_float32", 4, chain),
    ], place


def elementwise(shape, operand, result, isa):
    """The step that limits the elements of a tensor to 0..9."""
    module = native()
    load = module.ElementInstruction(code="load", a=0)
    spec = module.ElementwiseIntSpec(shape=shape, operands=[operand], instructions=[load], result=result, low=0, high=9)
    return module.elementwise_int(spec, isa)


@pytest.mark.parametrize("which", range(10))
def test_elements_begin_at_multiples_of_their_size(which):
    cases, place = steps_with_elements()
    _, item, step = cases[which]
    program(step(place(0, item), place(1, item)))
    message = f"takes elements of {item} bytes from buffer"
    with pytest.raises(ValueError, match=f"{message} 0 that do not begin at a multiple"):
        program(step(place(0, item // 2), place(1)))
    with pytest.raises(ValueError, match=f"{message} 1 that do not begin at a multiple"):
        program(step(place(0), place(1, item + 1)))
    with pytest.raises(ValueError, match=f"{message} 0 that do not begin at a multiple"):
        program(step(place(0), place(1)), [("arena", 1, 63), *BUFFERS[1:]])
    with pytest.raises(ValueError, match=f"{message} 0 that do not begin at a multiple"):
        program(step(place(0), place(1)), [("constant", 0, 16), *BUFFERS[1:]], [np.zeros(128, np.uint8)[1:]])
    buffers = [("external", 0, 64), *BUFFERS[1:]]
    made_with = program(step(place(0), place(1)), buffers)
    memory = made_with.make_memory()
    memory.set_input(made_with, 0, np.zeros(64, np.uint8))
    with pytest.raises(ValueError, match="does not begin at a multiple of its elements' size"):
        memory.set_input(made_with, 0, np.zeros(65, np.uint8)[1:])


def test_strides_are_multiples_of_elements():
    module = native()
    tensor, place = module.ElementTensor, module.Place
    for operand, result in (([9, 2], [8, 2]), ([8, 2], [9, 2])):
        with pytest.raises(ValueError, match="a stride is not a multiple of the element"):
            elementwise(
                [2, 4],
                tensor(place=place(0), type="u16", strides=operand),
                tensor(place=place(1), type="u16", strides=result),
                "scalar",
            )


# Writes


def test_constants_and_inputs_are_not_written():
    step = copy_step(source=(0, 0), target=(1, 0))
    with pytest.raises(ValueError, match="would write to buffer 1, which is constant"):
        program(step, [("arena", 0, 64), ("constant", 0, 16)], [np.zeros(80, np.uint8)])
    made_with = program(step, [("arena", 0, 64), ("external", 0, 16)])
    memory = made_with.make_memory()
    memory.set_output(made_with, 1, np.zeros(16, np.uint8))
    with pytest.raises(ValueError, match="would write to an input"):
        memory.set_input(made_with, 1, np.zeros(16, np.uint8))


# Sizes for which a sum with the slack would wrap around 2**64


def test_sizes_near_the_end_of_the_address_space_are_refused():
    step = copy_step()
    for arena in (2**64 - 1, 2**64 - 64, 2**48):
        with pytest.raises(ValueError, match="the arena is too large"):
            program(step, arena=arena)
    with pytest.raises(ValueError, match="a constant is smaller than its buffer"):
        program(step, [("constant", 0, 2**64 - 32), ("arena", 128, 64)], [np.zeros(128, np.uint8)])
    for offset, size in ((2**63, 64), (64, 2**64 - 64), (2**64 - 64, 64)):
        with pytest.raises(ValueError, match="outside of the arena"):
            program(step, [("arena", offset, size), ("arena", 128, 64)])


@pytest.mark.parametrize("kind", ["quantize_and_back", "float_elements", "requant_alone"])
def test_feeds_that_lie_askew_are_copied(kind):
    """NumPy allows elements at any address; results do not depend on it."""
    case = make(kind, 3)
    plan = NativePlan(case.graph, case.chip.name, available_isas()[-1], 1)
    askew = []
    for array in case.feeds:
        memory = np.zeros(array.nbytes + 1, np.uint8)
        askew.append(memory[1:].view(array.dtype).reshape(array.shape))
        askew[-1][...] = array
    for found, expected in zip(
        plan.run(askew, evaluator(case.chip)), plan.run(case.feeds, evaluator(case.chip)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
