"""What steps say of the bytes that they touch, and what a program refuses because of it.

Buffers of the caller end with their last byte: a step that loads whole registers must say so, and is refused there. A
build with sanitizers ends where one did not say so.
"""

import numpy as np
import pytest
from native_cases import KINDS, make
from native_cases.comparison import evaluator
from native_cases.recorded_calls import made, recorded, run_alone

from tpuconvert.runtime.native.loader import available_isas, extension, native
from tpuconvert.runtime.native.plan import NativePlan

pytestmark = pytest.mark.skipif(extension() is None, reason="the native engine was not built")

MOST_BYTES = 1 << 16
BUFFERS = [("arena", 0, 64), ("arena", 128, 64), ("external", 0, 64)]


def program(step, buffers=BUFFERS, constants=(), arena=256):
    return native().Program(steps=[step], buffers=buffers, constants=list(constants), arena_bytes=arena, threads=1)


def copy_step(source=(0, 0), target=(1, 0), itemsize=1):
    module = native()
    place, strides = module.Place, [itemsize]
    return module.copy(place(*source), place(*target), [4], strides, strides, itemsize, 0)


def refusal_of(module, step, sizes):
    """Why a step is refused on these buffers; nothing where it ran."""
    try:
        run_alone(module, step, sizes, 1)
    except ValueError as error:
        return str(error)
    except IndexError:  # indices are whatever lies there
        return ""
    return ""


# Reads behind the end


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_step_keeps_to_what_it_says(kind, monkeypatch):
    """With one buffer after the other as an array that ends with it, a step is refused, or stays inside."""
    module, rng = native(), np.random.default_rng(0)
    for seed in range(len(available_isas())):
        steps, sizes = recorded(kind, seed, monkeypatch)
        if sum(size for _, size in sizes) > MOST_BYTES:
            continue
        for step in (made(call, module, None, rng) for call in steps):
            for index, (_, size) in enumerate(sizes):
                outside = [*sizes[:index], ("external", size), *sizes[index + 1 :]]
                refusal = refusal_of(module, step, outside)
                assert not refusal or f"may read behind buffer {index}, which is the caller's" in refusal, seed


@pytest.mark.parametrize(
    ("kind", "name", "operands"),
    [
        ("conv_v2", "conv_int8", [0]),
        ("conv_v2_depthwise", "conv_int8", [0]),
        ("matrix_mul_modes", "conv_int8", [0]),
        ("matrix_mul_v2_two_operands", "Product", [0, 1]),
    ],
)
def test_steps_that_load_whole_registers_are_refused_on_buffers_of_callers(kind, name, operands, monkeypatch):
    module, rng = native(), np.random.default_rng(0)
    found = 0
    for seed in range(8):
        steps, sizes = recorded(kind, seed, monkeypatch)
        for step in steps:
            call = next((item for item in (step, *step.arguments) if getattr(item, "name", "") == name), None)
            for operand in operands if call else ():
                index = call.arguments[operand].arguments[0]
                outside = [*sizes[:index], ("external", sizes[index][1]), *sizes[index + 1 :]]
                with pytest.raises(ValueError, match=rf"step 0 \(.*\) may read behind buffer {index}, which is the"):
                    run_alone(module, made(step, module, None, rng), outside, 1)
                found += 1
    assert found


def test_fused_steps_of_transformers_are_refused_there_too():
    module = native()
    place = module.Place
    buffers = [("external", 0, 64), ("arena", 0, 64), ("arena", 128, 64), ("arena", 256, 64)]

    def refused(step, buffer):
        with pytest.raises(ValueError, match=f"may read behind buffer {buffer}"):
            program(step, [*buffers[1 : 1 + buffer], buffers[0], *buffers[1 + buffer :]], arena=384)

    form = (1.0, 0, 0, 255)
    refused(module.norm_bytes(place(0), place(1), 1, 4, 1e-5, form, "scalar"), 0)
    refused(module.norm_bytes(place(1), place(2), 1, 4, 1e-5, form, "scalar", residual=place(0)), 0)
    real = module.Epilogue(4, module.Rescale.NONE, low=-65536, high=65536, bytes=4, real=(0, 1.0))
    byte = module.Epilogue(4, module.Rescale.NONE)
    scores = module.Product(place(0), place(1), place(3), [4, 4, 4], [4], [4, 1], [16], real)
    values = module.Product(place(3), place(2), place(3), [4, 4, 4], [4], [4, 1], [4], byte)
    for operand in range(3):
        refused(module.attention_int8(scores, form, values, "scalar"), operand)


def test_constants_without_slack_are_for_steps_that_need_none():
    module = native()
    place = module.Place
    form = (1.0, 0, 0, 255)
    buffers = [("constant", 0, 64), ("arena", 0, 64)]
    program(copy_step(), buffers, [np.zeros(64, np.uint8)])
    norm = module.norm_bytes(place(0), place(1), 1, 4, 1e-5, form, "scalar")
    program(norm, buffers, [np.zeros(128, np.uint8)])
    with pytest.raises(ValueError, match="may read behind buffer 0, which has no slack"):
        program(norm, buffers, [np.zeros(127, np.uint8)])
    with pytest.raises(ValueError, match="a constant is smaller than its buffer"):
        program(copy_step(), buffers, [np.zeros(63, np.uint8)])


# Alignment


def steps_with_elements():
    """Steps by the bytes of an element, as functions of where they read and write."""
    module = native()
    place = module.Place

    def elements(source, target, kind, item):
        tensor, isa = module.ElementTensor, available_isas()[-1]
        clamp = module.ElementInstruction("load", 0)
        return module.elements(
            isa, [4], -1, [tensor(source, kind, [item])], [clamp], tensor(target, kind, [item]), 0, 9, 0, []
        )

    return [
        ("copy", 2, lambda s, t: module.copy(s, t, [4], [2], [2], 2, 0)),
        ("copy", 4, lambda s, t: module.copy(s, t, [4], [4], [4], 4, 0)),
        ("gather", 2, lambda s, t: module.gather(s, t, 1, 4, 2, [1, 0])),
        ("gather", 4, lambda s, t: module.gather(s, t, 1, 4, 4, [1, 0])),
        ("take", 2, lambda s, t: module.take(s, place(2), t, 1, 4, 2, 4, "")),
        ("take", 4, lambda s, t: module.take(s, place(2), t, 1, 4, 4, 4, "")),
        ("elements", 2, lambda s, t: elements(s, t, "i16", 2)),
        ("elements", 4, lambda s, t: elements(s, t, "32", 4)),
        ("softmax_float32", 4, lambda s, t: module.softmax_float32(s, t, 1, 4, "scalar")),
        ("chain_float32", 4, lambda s, t: module.chain_float32(t, [4], [(s, [4])], [("abs", -1, 0.0, 0.0)], "scalar")),
    ], place


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
            module.elements(
                "scalar", [2, 4], -1, [tensor(place(0), "u16", operand)], [module.ElementInstruction("load", 0)],
                tensor(place(1), "u16", result), 0, 9, 0, [],
            )  # fmt: skip


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


# Sizes that sums with the slack would carry around 2**64


def test_sizes_near_the_end_of_the_address_space_are_refused():
    step = copy_step()
    for arena in (2**64 - 1, 2**64 - 64, 2**48):
        with pytest.raises(ValueError, match="the arena is too large"):
            program(step, arena=arena)
    with pytest.raises(ValueError, match="a constant is smaller than its buffer"):
        program(step, [("constant", 0, 2**64 - 32), ("arena", 128, 64)], [np.zeros(128, np.uint8)])
    for offset, size in ((2**63, 64), (64, 2**64 - 64), (2**64 - 64, 64)):
        with pytest.raises(ValueError, match="does not lie in the arena"):
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
