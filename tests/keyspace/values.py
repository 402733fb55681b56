"""Strategies: patterns as a person would write them, with values that fit, and declared keyspaces."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.pattern import Pattern, parse_pattern
from mpreg.keyspace.placeholder import Placeholder

LITERALS = st.text(st.sampled_from("ab:/._-é*[ "), min_size=1, max_size=4)
KINDS = st.sampled_from([":int", ":date", ":word", ":bytes", "", ":a|bc|high"])


@st.composite
def pattern_texts(draw: st.DrawFn) -> str:
    """Literal text and placeholders in turn; not every one of them is a valid pattern."""
    count = draw(st.integers(0, 3))
    parts = [draw(LITERALS) if draw(st.booleans()) else ""]
    for number in range(count):
        kind = ":path" if number == count - 1 and draw(st.booleans()) else draw(KINDS)
        parts += [f"{{p{number}{kind}}}", draw(LITERALS)]
    if draw(st.booleans()):
        parts.pop()
    return "".join(parts) or "x"


def value_of(placeholder: Placeholder) -> st.SearchStrategy[Any]:
    kept = st.characters(exclude_categories=["Cs"], exclude_characters="".join(placeholder.refused))
    match placeholder.kind:
        case "int":
            return st.integers(-(2**63) + 1, 2**63 - 1)
        case "date":
            return st.dates(min_value=datetime.date(1000, 1, 1))
        case "choice":
            return st.sampled_from(placeholder.choices)
        case "bytes":
            taken = {byte for character in placeholder.refused for byte in character.encode()}
            return st.lists(st.integers(0, 255).filter(lambda byte: byte not in taken), min_size=1, max_size=8).map(
                bytes
            )
        case "word":
            return st.text(kept, min_size=1, max_size=20)
        case _:
            return st.text(kept, min_size=1, max_size=20)


def values_of(pattern: Pattern) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({one.name: value_of(one) for one in pattern.placeholders})


def valid(text: str) -> Pattern | None:
    try:
        return parse_pattern(text)
    except KeyspaceError:
        return None


patterns = pattern_texts().map(valid).filter(lambda pattern: pattern is not None)
