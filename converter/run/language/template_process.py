"""Process that renders a chat template: ``python -m tpuconvert.run.language.template_process``.

A template comes with a model and is a program. The sandbox of jinja2 refuses access to Python's objects, and the limits
of the process end loops and texts without an end. The request is read from stdin and the answer written to stdout, as
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from tpuconvert.schema.text.json_text import parse_json


def render_template(source: str, variables: Mapping[str, Any], longest: int) -> str:
    """Return the text of a template, rendered with the settings and functions of transformers.

    Args:
        source: the template.
        variables: values of its variables.
        longest: largest number of characters of the text.

    Raises:
        Exception: the template is not valid, has an error, accesses what the sandbox refuses, or exceeds a limit.
    """
    import jinja2.ext  # optional dependency
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(jinja2.ext.Extension):
        """Parts of a template that an assistant has written; training uses these marks."""

        tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def to_json(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    extensions: list[Any] = [GenerationBlock, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    pieces, length = [], 0
    for piece in environment.from_string(source).generate(**variables):
        pieces.append(piece)
        length += len(piece)
        if length > longest:
            raise ValueError(f"its text has more than {longest} characters")
    return "".join(pieces)


def main() -> None:
    """Answer one request: an object with ``text`` or ``error``."""
    request = parse_json(sys.stdin.buffer.read().decode())
    _limit(request["memory"], request["seconds"])
    try:
        answer = {"text": render_template(request["template"], request["variables"], request["longest"])}
    except ImportError:
        raise
    except MemoryError:
        answer = {"error": f"it needs more than {request['memory'] >> 20} MiB"}
    except Exception as error:
        line = getattr(error, "lineno", None)
        line_text = "" if line is None else f"line {line}: "
        answer = {"error": f"{line_text}{type(error).__name__}: {error}"[:500]}
    sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))


def _limit(memory: int, seconds: int) -> None:
    """Limit memory and time of this process. Windows has no such limits; the parent limits the time there too."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


if __name__ == "__main__":
    main()
