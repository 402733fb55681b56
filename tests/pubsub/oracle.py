"""What a pattern means, said as a regular expression, and topics and patterns to try."""

from __future__ import annotations

import re

from hypothesis import strategies as st

LEVELS = ("a", "b", "c")


def regex(pattern: str) -> re.Pattern[str]:
    """Over the topic with a `.` after each level: `*` is one level, `#` any number of them."""
    parts = {"*": r"[^.]+\.", "#": r"(?:[^.]+\.)*"}
    return re.compile("".join(parts.get(level) or re.escape(level) + r"\." for level in pattern.split(".")))


def matches(pattern: str, topic: str) -> bool:
    return regex(pattern).fullmatch(topic + ".") is not None


topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6).map(".".join)
patterns = st.lists(st.sampled_from((*LEVELS, "*", "#")), min_size=1, max_size=6).map(".".join)
