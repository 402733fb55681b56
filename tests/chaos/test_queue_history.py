"""The checker of queue histories sees what it is for."""

from __future__ import annotations

import msgspec
import pytest
from tests.chaos.queue_history import Event, Left, violations


def sent(number: int, group: str = "") -> list[Event]:
    key = f"p/{number}"
    return [
        Event(what="sending", process=1, key=key, group=group),
        Event(what="sent", process=1, key=key, group=group, message_id=f"m{number}"),
    ]


def received(number: int, at: float, *, nth: int = 1, lease: float = 10, group: str = "", process: int = 2) -> Event:
    return Event(
        what="received",
        process=process,
        key=f"p/{number}",
        group=group,
        message_id=f"m{number}",
        receipt=f"{number}/{nth}",
        lease_from=at,
        lease_until=at + lease,
        retry_count=nth - 1,
    )


def then(what: str, delivery: Event, until: float = 0.0) -> Event:
    changes = {"what": what, "lease_until": until or delivery.lease_until}
    return msgspec.structs.replace(delivery, **changes)


def wrong(events: list[Event], left: Left | None = None, max_retries: int = 3) -> str:
    return "; ".join(violations(events, left or Left(), max_retries))


def test_a_good_history() -> None:
    first, again, second = received(1, 0), received(1, 10, nth=2), received(2, 1)
    events = [*sent(1), *sent(2), first, second, again, then("acknowledged", second), then("acknowledged", again)]
    assert wrong(events) == ""


def test_a_lost_message() -> None:
    assert "p/1 was sent, and nobody ever got it" in wrong(sent(1))
    assert wrong(sent(1), Left(dead=frozenset({"p/1"}))) == ""
    assert wrong(sent(1), Left(expired=1)) == ""
    assert wrong(sent(1)[:1]) == ""  # nobody was told that it is stored
    assert "1 messages wait" in wrong([], Left(waiting=1))


def test_a_message_out_of_nowhere() -> None:
    assert "nobody sent it" in wrong([received(1, 0)])


def test_too_many_deliveries() -> None:
    events = [*sent(1), *(received(1, 100 * n, nth=n) for n in range(1, 6))]
    assert wrong(events, max_retries=4) == ""
    assert "delivered 5 times" in wrong(events, max_retries=3)


def test_two_holders() -> None:
    first, second = received(1, 0), received(1, 9, nth=2, process=3)
    assert "before its lease ended" in wrong([*sent(1), first, second])
    assert wrong([*sent(1), first, then("retrying", first), second]) == ""
    assert wrong([*sent(1), first, received(1, 10, nth=2)]) == ""


def test_acknowledged_twice() -> None:
    first, second = received(1, 0), received(1, 20, nth=2)
    events = [*sent(1), first, then("acknowledged", first), second, then("acknowledged", second)]
    assert "acknowledged 2 times" in wrong(events)


@pytest.mark.parametrize("again", [False, True])
def test_a_group_out_of_order(again: bool) -> None:
    one, two = received(1, 5, group="g"), received(2, 0, group="g")
    if again:  # the earlier one comes back while the later one is out
        one, two = received(1, 0, group="g", lease=1), received(2, 2, group="g")
        events = [*sent(1, "g"), *sent(2, "g"), one, two, received(1, 3, nth=2, group="g")]
    else:
        events = [*sent(1, "g"), *sent(2, "g"), two, one]
    assert "was handed out before p/1 was done" in wrong(events)
    assert wrong([*sent(1, "g"), *sent(2, "h"), received(2, 0, group="h"), received(1, 5, group="g")]) == ""
