"""Conditions as one types them: `ttl_remaining<60`."""

from __future__ import annotations

import re
from typing import Any

import rich_click as click

_CONDITION = re.compile(r"(?P<field>\w+)\s*(?P<how><=|>=|!=|=|<|>)\s*(?P<number>-?\d+(?:\.\d+)?)")
_OPERATORS = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte", "=": "$eq", "!=": "$ne"}


def conditions_of(texts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    wanted: dict[str, dict[str, Any]] = {}
    for text in texts:
        found = _CONDITION.fullmatch(text.strip())
        if found is None:
            raise click.BadParameter(f"{text!r} is no condition like ttl_remaining<60", param_hint="--if")
        number = float(found["number"])
        comparison = wanted.setdefault(found["field"], {})
        comparison[_OPERATORS[found["how"]]] = int(number) if number.is_integer() else number
    return wanted
