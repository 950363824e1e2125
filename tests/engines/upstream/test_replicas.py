"""Which of several servers is asked: by the session, by how busy they are, and never one that is down, busy or draining."""

from collections import Counter

import pytest

from callsmith.core.errors import Rejected, TimedOut, Unavailable, UnknownName, UsageError
from callsmith.engines.upstream.errors import NotReached
from callsmith.engines.upstream.replicas import Replica, Replicas

URLS = [f"http://gpu{number}" for number in range(4)]
SESSIONS = [f"session {number}" for number in range(400)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def chosen(replicas: Replicas, session: str = "", tried: tuple[Replica, ...] = ()) -> Replica:
    replica = replicas.choose(session, tried)
    assert replica is not None
    return replica


def states(replicas: Replicas) -> list[str]:
    return [replica.state for replica in replicas.status()]


def test_a_session_stays_where_it_is_and_sessions_are_spread() -> None:
    replicas = Replicas(URLS)
    at = {session: chosen(replicas, session).url for session in SESSIONS}
    assert at == {session: chosen(Replicas(URLS[::-1]), session).url for session in SESSIONS}
    assert min(Counter(at.values()).values()) > len(SESSIONS) / len(URLS) * 0.6
    without = Replicas(URLS[:-1])
    moved = [session for session in SESSIONS if chosen(without, session).url != at[session]]
    assert {at[session] for session in moved} == {URLS[-1]}


def test_a_session_that_everybody_is_in_does_not_drown_its_server() -> None:
    replicas = Replicas(URLS)
    for _ in range(8):
        chosen(replicas, "hot").answering += 1
    assert sum(replica.answering > 0 for replica in replicas.all) == 1
    for _ in range(92):
        chosen(replicas, "hot").answering += 1
    assert max(replica.answering for replica in replicas.all) <= 100 / 4 * 1.25 + 1
    assert min(replica.answering for replica in replicas.all) > 5


def test_without_a_session_the_least_busy_one_is_asked() -> None:
    replicas = Replicas(URLS)
    for _ in range(40):
        chosen(replicas).answering += 1
    assert {replica.answering for replica in replicas.all} == {10}


def test_a_server_that_cannot_be_reached_is_down_at_once_and_one_that_fails_after_three_times_in_a_row() -> None:
    replicas = Replicas(URLS[:3])
    first, second, third = replicas.all
    replicas.note_failure(first, NotReached("http://gpu", "refused"))
    for _ in range(2):
        replicas.note_failure(second, TimedOut("slow"))
        replicas.note_failure(third, Unavailable("broke off"))
    replicas.note_success(third)
    replicas.note_failure(second, Rejected("bad gateway", status=502))
    replicas.note_failure(third, Unavailable("broke off"))
    assert states(replicas) == ["down", "down", "up"]
    assert {chosen(replicas, session) for session in SESSIONS} == {third}
    replicas.note_success(first)
    assert states(replicas) == ["up", "down", "up"]


def test_what_a_client_asks_for_takes_no_server_away() -> None:
    replicas = Replicas(URLS)
    for replica in replicas.all:
        for status in (400, 401, 404, 422, 500, 500, 500, 500):
            replicas.note_failure(replica, Rejected("no", status=status))
    assert set(states(replicas)) == {"up"}


@pytest.mark.parametrize(("seconds", "pause"), [(None, 1.0), (7.0, 7.0), (1e6, 60.0)])
def test_a_busy_server_is_left_alone_for_as_long_as_it_asks_within_bounds(seconds: float | None, pause: float) -> None:
    clock = Clock()
    replicas = Replicas(URLS[:2], clock)
    busy, other = replicas.all
    replicas.note_failure(busy, Rejected("slow down", status=429, seconds=seconds))
    clock.now += pause - 0.01
    assert (states(replicas), chosen(replicas)) == (["busy", "up"], other)
    clock.now += 0.02
    assert states(replicas) == ["up", "up"]


def test_probes_come_later_and_later_and_the_error_says_when_to_come_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, waits = Clock(), list[float]()
    replicas = Replicas(URLS[:2], clock)
    for replica in replicas.all:
        replicas.note_failure(replica, NotReached(replica.url, "refused"))
    for _ in range(12):
        replicas.note_failed_probe(replicas.all[0])
        waits.append(replicas.all[0].next_probe - replicas.clock())
    assert waits[0] < waits[2] < waits[5] <= 6
    assert replicas.choose("s") is None
    error = replicas.none_usable()
    assert (error.retryable, error.seconds) == (True, 1.0)
    assert error.message == "no server can be asked now: of 2, 2 down"  # where they are is in the log
    assert "http://gpu0 cannot be reached: refused; http://gpu1 cannot be reached: refused" in caplog.text


def test_where_all_are_down_one_request_may_probe_them_at_once_and_the_next_only_after_a_while() -> None:
    clock = Clock()
    replicas = Replicas(URLS[:3], clock)
    for replica in replicas.all:
        replicas.note_failure(replica, NotReached("http://gpu", "refused"))
    replicas.drain(URLS[2], True)
    assert replicas.due_now() == replicas.all[:2]
    assert replicas.due_now() == []
    clock.now += 0.3
    assert replicas.due_now() == replicas.all[:2]


def test_a_draining_server_gets_no_new_requests_until_it_is_said_otherwise() -> None:
    replicas = Replicas(URLS[:2])
    replicas.drain(URLS[0] + "/", True)
    assert {chosen(replicas, session).url for session in SESSIONS} == {URLS[1]}
    assert states(replicas) == ["draining", "up"]
    replicas.drain(URLS[0], False)
    assert {chosen(replicas, session).url for session in SESSIONS} == set(URLS[:2])
    with pytest.raises(UnknownName, match="unknown upstream 'http://gpu9'"):
        replicas.drain("http://gpu9", True)


def test_a_single_server_is_always_asked_unless_it_drains() -> None:
    replicas = Replicas(URLS[:1])
    replicas.note_failure(replicas.all[0], NotReached("http://gpu", "refused"))
    replicas.note_failure(replicas.all[0], Rejected("slow down", status=429, seconds=60))
    assert replicas.choose("s") is replicas.all[0]
    replicas.drain(URLS[0], True)
    assert replicas.choose("s") is None


def test_the_same_server_twice_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="the same server twice"):
        Replicas(["http://a", "http://a"])
