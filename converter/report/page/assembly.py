"""Assembly of the page: style sheets, scripts and data in one file that a strict security policy protects.

The page loads nothing: its policy allows the one inline style sheet and the one inline script by their digests, and no
connection. Scripts never parse data as HTML.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from tpuconvert.report.page.constants import script_constants
from tpuconvert.report.page.packing import pack_block
from tpuconvert.report.page.theme import theme_css
from tpuconvert.report.report_data import to_compact_json
from tpuconvert.schema.text.html_text import escape

_FIRST_SCRIPT, _FIRST_STYLE = "core.js", "page.css"
"""The files that the others need. The others follow in the order of their names."""


def assemble_page(title: str, body: str, block: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        title: title of the document, as text.
        body: static content, as HTML.
        block: the data, as ``report_data`` returns them.

    """
    style, script = style_sheet(), script_text()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}"
        f'<script type="application/json" id="report-data">{_json_in_html(block)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def style_sheet() -> str:
    """Return the style sheets in one text, without indentation."""
    text = theme_css() + "".join(text for _, text in _assets(".css", _FIRST_STYLE))
    return "".join(line.lstrip() for line in text.splitlines(keepends=True))


def script_text() -> str:
    """Return the scripts in one text. Each is wrapped in a function; they share ``report``, with the constants."""
    parts = [f"(function () {{ // {name}\n{text}}})();\n" for name, text in _assets(".js", _FIRST_SCRIPT)]
    constants = to_compact_json(script_constants())
    return f'"use strict";\nconst report = {{ constants: {constants} }};\n{"".join(parts)}report.start();\n'


def _assets(suffix: str, first: str) -> list[tuple[str, str]]:
    """Return name and text of the files with a suffix: ``first``, then the others by name."""
    folder = resources.files("tpuconvert.report.page")
    names = sorted(
        (item.name for item in folder.iterdir() if item.name.endswith(suffix)), key=lambda name: (name != first, name)
    )
    return [(name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


def _json_in_html(block: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its element or begin a comment in it."""
    return to_compact_json(pack_block(block)).replace("<", "\\u003c")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
