"""Integer recurrent layers in all directions."""

from tests.support.native_cases.draft import Draft, kind
from tests.support.operators.recurrent_int_layers import KINDS as LAYERS
from tests.support.operators.recurrent_int_layers import random_layer
from tpuconvert.schema.graph.graph import Value
from tpuconvert.schema.ops.recurrent.recurrent import Direction
from tpuconvert.schema.types import I8, U8, DType


@kind(300)
def integer_recurrent_layers(draft: Draft) -> None:
    """lstm_int, gru_int and rnn_int, with and without lengths and initial states."""
    definition, parameters = LAYERS[draft.number(0, len(LAYERS) - 1)]
    shape = draft.small(8), draft.small(6), draft.small(40), draft.small(40)
    op, operands = random_layer(
        definition,
        parameters,
        shape,
        draft.number(0, 1 << 20),
        draft.pick(*Direction),
        optional=draft.chance(0.5),
        dtype=draft.pick(I8, U8),
    )
    values: list[Value | None] = []
    for index, array in enumerate(operands):
        if array is None or index in (1, 2, 3):
            values.append(None if array is None else draft.constant(array))
        else:
            values.append(draft.input(DType.of(array.dtype), array.shape, array))
    draft.add_all(op, *values)
