"""Execution of a TFLite model with the reference kernels of LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.tflite.cases import Case, Given, Variable
from tests.support.tflite.models import O, S, T, serialize

_QUANTIZED = ("int8", "uint8", "int16")


ONLY_OPTIMIZED = ("CEIL", "ELU", "ROUND", "SEGMENT_SUM")
"""Operators that the interpreter with reference kernels lacks."""


def reference_runner(model: bytes, *, optimized: bool = False) -> Any:
    """An interpreter with reference kernels (or the optimized ones, without delegates), with allocated tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimized else OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    return interpreter


def run_interpreter(interpreter: Any, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of one run."""
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], np.asarray(array))
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


def reference_outputs(case: Case) -> list[np.ndarray[Any, Any]]:
    """Results of the reference kernels."""
    optimized = case.optimized or case.op in ONLY_OPTIMIZED
    return run_interpreter(reference_runner(model_of(case), optimized=optimized), arrays_of(case))


def subgraph_of(case: Case) -> S:
    """The case as a subgraph with one operator."""
    tensors: list[T] = []
    places, inputs = [], []
    for operand in case.inputs:
        places.append(-1 if operand is None else len(tensors))
        if operand is None:
            continue
        name = f"t{len(tensors)}"
        if isinstance(operand, Variable):
            tensors.append(T(name, operand.shape, operand.type, variable=True))
        elif isinstance(operand, T):
            tensors.append(operand)
        else:
            array = operand.array if isinstance(operand, Given) else operand
            if isinstance(operand, Given):
                inputs.append(len(tensors))
            shape, type_name, data = (
                array.shape,
                array.dtype.name.upper(),
                None if isinstance(operand, Given) else array,
            )
            scale = _scale(case, array.dtype.name)
            tensors.append(T(name, shape, type_name, data, *scale))
    results = []
    for number, entry in enumerate(case.outputs):
        type_name, shape = (entry, ()) if isinstance(entry, str) else entry
        results.append(len(tensors))
        tensors.append(T(f"y{number}", shape, type_name, None, *_scale(case, type_name.lower())))
    operator = O(case.op, places, results, case.table, case.options, case.version)
    return S(tensors, [operator], inputs, results)


def _scale(case: Case, dtype: str) -> tuple[Sequence[float], Sequence[int]]:
    if not case.scale or dtype not in _QUANTIZED:
        return (), ()
    return (case.scale,), (0 if dtype == "int16" else case.zero_point,)


def model_of(case: Case) -> bytes:
    """The case as a TFLite file."""
    return serialize(subgraph_of(case), *case.subgraphs)


def arrays_of(case: Case) -> list[Any]:
    """Input arrays of the model."""
    return [operand.array for operand in case.inputs if isinstance(operand, Given)]
