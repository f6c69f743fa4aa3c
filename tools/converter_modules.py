"""Writes down which modules of the ONNX frontend convert each operator, so that a conversion loads only those.

Those that evaluate it on constants stand in a table of their own: most nodes have an input that is none.

    python tools/converter_modules.py [--check]

Modules register their converters when they are imported. This imports all of them and watches which one registers what.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

from generated_file import write_or_check

from tpuconvert.frontends.registry import ConverterRegistry, Registration, registry

PACKAGE = "tpuconvert.frontends.onnx"
PLACES = Path(__file__).resolve().parent.parent / "frontends" / "onnx" / "_modules.py"
COMMAND = ".venv/bin/python tools/converter_modules.py"
HEAD = f'''"""Operator and domain -> the modules that convert it or evaluate it on constants.

Made by: {COMMAND}
"""

# fmt: off
'''


Places = dict[tuple[str, str], set[str]]
"""The modules of every operator and domain."""


def found() -> tuple[Places, Places]:
    """Those that convert, and those that evaluate. To be called in a process in which no converter has been loaded."""
    converters: Places = {}
    evaluators: Places = {}
    add = ConverterRegistry.add

    def watched(made: ConverterRegistry, registration: Registration) -> None:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        module = str(frame.f_globals["__name__"]).removeprefix(f"{PACKAGE}.")
        places = converters if made is registry("onnx") else evaluators
        places.setdefault((registration.name, registration.domain), set()).add(module)
        add(made, registration)

    with mock.patch.object(ConverterRegistry, "add", watched):
        registry("onnx").discover()
    return converters, evaluators


def text() -> str:
    """The module that holds the tables."""
    converters, evaluators = found()
    return HEAD + _table("CONVERTERS", converters) + _table("EVALUATORS", evaluators)


def _table(name: str, places: Places) -> str:
    rows = (
        f'    ("{operator}", "{domain}"): {tuple(sorted(where))!r},\n'
        for (operator, domain), where in sorted(places.items())
    )
    return f"{name} = {{\n" + "".join(rows).replace("'", '"') + "}\n"


def main() -> int:
    """Write the table, or look whether it is as it was written."""
    description = (__doc__ or "").splitlines()[0]
    return write_or_check(PLACES, lambda: text().encode(), tool=Path(__file__).name, description=description)


if __name__ == "__main__":
    sys.exit(main())
