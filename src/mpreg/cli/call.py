"""`mpreg call FUN ARGS…`: one function, its result on stdout."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

_KEYWORD = re.compile(r"(?P<name>[^\W\d]\w*)=(?P<value>.*)", re.DOTALL)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("fun")
@click.argument("args", nargs=-1)
@node_options
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True, help="Seconds."
)
@click.option("--loc", "locs", multiple=True, help="A resource that the function must have; several are joined.")
@json_option
def call(fun: str, args: tuple[str, ...], timeout: float, locs: tuple[str, ...], as_json: bool, **where: Any) -> None:
    """Call the function FUN of a node with ARGS, and print its result.

    An argument is JSON, or else plain text: `3` is a number, `"3"` and `three` are text, `[1,2]` is a list. A keyword
    argument is `name=value`; text that looks like one is written as JSON: `'"a=b"'`. A result that is text is printed
    as it is, anything else as JSON; with --json all of it.
    """
    positional, keywords = arguments(args)
    result = run(_call(where, fun, positional, keywords, timeout, locs))
    if as_json:
        write_json(result)
    else:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2, default=str)
        sys.stdout.write(text + "\n")


def arguments(words: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for word in words:
        found = _KEYWORD.fullmatch(word)
        if found:
            if found["name"] in keywords:
                raise click.BadParameter(f"{found['name']} is given twice")
            keywords[found["name"]] = value_of(found["value"])
        elif keywords:
            raise click.BadParameter(f"{word!r}: positional arguments come before name=value")
        else:
            positional.append(value_of(word))
    return positional, keywords


def value_of(word: str) -> Any:
    try:
        return json.loads(word, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return word


def _no_constant(word: str) -> Any:
    raise ValueError(word)  # NaN and Infinity are text: JSON has no such numbers


async def _call(
    where: dict[str, Any],
    fun: str,
    args: list[Any],
    kwargs: dict[str, Any],
    timeout: float,
    locs: tuple[str, ...],
) -> Any:
    from mpreg.wire.encoding import Encoding

    # JSON, so that what is printed is what a JSON client would get: bytes are base64, times are ISO 8601.
    async with connecting(**where, encoding=Encoding.JSON, timeout_s=timeout) as client:
        # A keyword of the function may be called as one of `Client.call` itself.
        own = {"locs", "timeout", "result_type"} & kwargs.keys()
        if own:
            raise click.BadParameter(f"{', '.join(sorted(own))}: give this argument by its position")
        return await client.call(fun, *args, locs=locs, timeout=timeout, **kwargs)
