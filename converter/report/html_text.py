"""Text in HTML and SVG."""

from __future__ import annotations

import html

from tpuconvert.schema.visible_text import visible


def escape(text: object) -> str:
    """Escape text for HTML and XML, including attribute values."""
    return html.escape(visible(str(text)), quote=True)
