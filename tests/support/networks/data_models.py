"""Names of the models of the data set, and their conversion."""

import json
import os
from pathlib import Path

from tools.pages.converted_models import convert_model, is_quantized

__all__ = ["convert_model", "is_quantized", "names"]


def names(*, is_float: bool = False) -> list[str]:
    """Names of the models in the manifest, or none if the data set is missing at test collection.

    Args:
        is_float: leave out the quantized models.
    """
    named = os.environ.get("TPUCONVERT_TEST_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[4] / "shared" / "data"
    manifest = root / "manifest.json"
    models = json.loads(manifest.read_text("utf-8"))["models"] if manifest.is_file() else []
    return [item["id"] for item in models if not (is_float and is_quantized(item))]
