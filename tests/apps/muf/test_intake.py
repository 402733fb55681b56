from hypothesis import given
from hypothesis import strategies as st

from mpreg.apps.muf.intake import LATE_EVENT_S, Intake
from mpreg.apps.muf.names import Name


def request(n: int) -> Name:
    return Name("FE", "REQ", str(n))


def test_what_finds_a_slot_is_taken_at_once() -> None:
    intake = Intake(2)
    assert intake.event(request(1), 0)
    assert intake.event(request(2), 0)
    assert not intake.event(request(3), 0)
    assert (len(intake), intake.waiting) == (2, 1)


def test_what_finds_no_slot_is_taken_when_one_is_free_in_the_order_of_coming() -> None:
    intake = Intake(1)
    intake.event(request(1), 0)
    intake.event(request(2), 0)
    intake.event(request(3), 0)
    assert intake.next(0) is None
    intake.done(request(1), 0)
    assert intake.next(0) == request(2)
    assert intake.next(0) is None
    intake.done(request(2), 0)
    assert intake.next(0) == request(3)


def test_an_event_after_the_scan_that_found_the_request_is_the_same_request() -> None:
    intake = Intake(2)
    assert intake.found(request(1), 0)
    intake.done(request(1), 0)
    assert not intake.event(request(1), 1)
    assert intake.event(request(1), 2), "but one more is a new request"


def test_a_scan_after_the_event_finds_nothing_new_while_the_request_lives() -> None:
    intake = Intake(2)
    assert intake.event(request(1), 0)
    assert not intake.found(request(1), 0)
    intake.done(request(1), 0, alive_s=10)
    assert not intake.found(request(1), 9)
    assert intake.found(request(1), 10)


def test_a_set_of_the_same_key_after_the_answer_is_a_new_request() -> None:
    intake = Intake(1)
    assert intake.event(request(1), 0)
    intake.done(request(1), 1, alive_s=10)
    assert intake.event(request(1), 2)


def test_an_event_late_after_a_scan_is_a_new_request() -> None:
    intake = Intake(1)
    assert intake.found(request(1), 0)
    intake.done(request(1), 0)
    assert intake.event(request(1), LATE_EVENT_S)


def test_a_request_that_another_has_leased_is_tried_again_when_the_lease_may_be_over() -> None:
    intake = Intake(1, recheck_s=3)
    assert intake.event(request(1), 0)
    intake.elsewhere(request(1), 0)
    assert len(intake) == 0
    assert intake.recheck_at == 3
    assert intake.next(2.9) is None
    assert intake.next(3) == request(1)


def test_a_request_that_another_has_claimed_for_good_is_forgotten() -> None:
    intake = Intake(1)
    assert intake.event(request(1), 0)
    intake.elsewhere(request(1), 0)
    assert intake.recheck_at is None
    assert intake.next(100) is None


@given(
    slots=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from(["event", "found", "done", "elsewhere", "next"]), st.integers(0, 5))),
)
def test_never_more_than_the_slots_never_one_twice_and_nothing_is_left_lying(
    slots: int, steps: list[tuple[str, int]]
) -> None:
    intake = Intake(slots, recheck_s=2)
    running: set[Name] = set()
    now = 0.0

    def taken(name: Name) -> None:
        assert name not in running
        running.add(name)

    for verb, n in steps:
        now += 0.25
        name = request(n)
        if (verb == "event" and intake.event(name, now)) or (verb == "found" and intake.found(name, now)):
            taken(name)
        elif verb in ("done", "elsewhere") and running:
            gone = sorted(running)[n % len(running)]
            running.discard(gone)
            getattr(intake, verb)(gone, now)
        elif verb == "next" and (more := intake.next(now)):
            taken(more)
        assert len(intake) == len(running) <= slots
    while True:
        for name in list(running):
            running.discard(name)
            intake.done(name, now)
        now += 3
        more = intake.next(now)
        if more is None:
            break
        taken(more)
    assert (len(intake), intake.waiting, intake.recheck_at) == (0, 0, None)
