"""click parameter type for one of a few values."""

from __future__ import annotations

from typing import Any

import click

from tpuconvert.schema.text.spelling import did_you_mean


class Choice(click.Choice[str]):
    """One of a few values. The error about another value suggests the most similar one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            suggestion = did_you_mean(str(value), self.choices)
            if not suggestion:
                raise
            raise click.BadParameter(f"{error.message.rstrip('.')}; {suggestion}", ctx, param) from None
