"""Options of packed weights."""

from __future__ import annotations

from dataclasses import dataclass

from tpuconvert.conversion.options.readers import read_weight_group
from tpuconvert.option_declaration import OptionGroup, document_fields, option


@document_fields
@dataclass(frozen=True, kw_only=True)
class PackedWeights(OptionGroup):
    """Types of the weights and activations of matmuls in a float model."""

    weight_type: str = option(
        "float32",
        "Type of the weights of matmuls in a float model. ``int4`` and ``int8`` store them with one scale per group of "
        "inputs. Samples of ``calibration`` make the rounding more accurate.",
        choices=("float32", "int8", "int4"),
    )
    weight_group: int = option(
        32,
        "Number of inputs that share a scale. One of 16, 32, 64, 128 or 256.",
        read=read_weight_group,
        metavar="N",
        lower=16,
    )
    weight_zero_points: bool = option(
        False,
        "Store a zero point per group besides the scale. For weights that are not centered at 0.",
    )
    embedding_type: str = option(
        "int8",
        "Type of the tables in which tokens are looked up. It has an effect with ``weight_type``; ``float32`` leaves "
        "them in float. A head with the weights of such a table shares them.",
        choices=("float32", "int8", "int4"),
    )
    activation_type: str = option(
        "float32",
        "Type of the activations of matmuls with packed weights. The weights are packed by ``weight_type`` or in the "
        "source; ``int8`` quantizes each group of each row when it is computed, and multiplies integers.",
        choices=("float32", "int8"),
    )
