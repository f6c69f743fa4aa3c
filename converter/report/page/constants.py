"""Constants that the scripts of the page share with Python. ``core.js`` hands them out as ``report.constants``."""

from __future__ import annotations

from typing import Any

from tpuconvert.model.float_names import KEEP_FLOAT
from tpuconvert.report.graph_layout import KIND_LEGEND
from tpuconvert.report.node_columns import COLUMNS
from tpuconvert.report.page.elements import FULL_BAR, VIEWS
from tpuconvert.report.page.packing import LEVELS, PREFIX_BASE, PREFIX_DIGITS
from tpuconvert.report.page.theme import LIGHT, SERIES
from tpuconvert.schema.types import DType
from tpuconvert.text.text_format import BYTE_UNITS, LONGEST
from tpuconvert.verify.difference import EQUAL_WORDS


def script_constants() -> dict[str, Any]:
    """Return the constants by their names in the scripts. Their definitions have the meaning of each."""
    return {
        "columns": COLUMNS,
        "views": VIEWS,
        "colors": list(LIGHT),
        "series": SERIES,
        "kindLegend": KIND_LEGEND,
        "integerBits": {dtype.value: dtype.bits for dtype in DType if dtype.is_integer},
        "equalWords": EQUAL_WORDS,
        "fullBar": FULL_BAR,
        "longestName": LONGEST,
        "byteUnits": BYTE_UNITS,
        "keepFloat": KEEP_FLOAT,
        "prefix": {"base": PREFIX_BASE, "digits": PREFIX_DIGITS},
        "levels": LEVELS,
    }
