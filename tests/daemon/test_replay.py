"""A replayed history gets the verdict that `check` gives it, or is refused: never another one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mussurana.verifier import Accepted, HistoryError, Rejected, Settings, check
from mussurana.verifier.commands.serve import check_fragment, machine_factory
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.formats import save
from mussurana.verifier.history import History, Kind, Status
from mussurana.verifier.replay.lists import as_registers
from mussurana.verifier.replay.translate import FRAGMENT_TXNS, streams
from mussurana.verifier.rounds.machine import Verifier
from mussurana.verifier.simulate import Workload, blindw, simulate
from mussurana.wire.history_pb2 import SessionEvent
from tests.cli.command import Command
from tests.cli.conftest import mussurana
from tests.daemon.conftest import running
from tests.daemon.watching import is_verified, until
from tests.notation import h, show
from tests.random_history import random_history
from tests.rounds.equality import LEVELS, PATIENT

__all__ = ["mussurana"]  # a fixture

START_NS = 10**18


def verdict(history: History, settings: Settings) -> str:
    found = check(history, settings).verdict
    return "accepted" if isinstance(found, Accepted) else "rejected" if isinstance(found, Rejected) else "unknown"


def replayed(history: History, settings: Settings, collectors: int = 1) -> str:
    machine = Verifier([settings], PATIENT)
    now_ns, verdicts = START_NS, set()
    for number, stream in enumerate(streams(history, START_NS, collectors, seed=1)):
        for sent in stream:
            now_ns += 1
            sent.fragment.sealed_ns = now_ns
            machine.feed(bytes([number]) * 16, sent.fragment, now_ns)
    for outcome in machine.step(now_ns + 1, force=True):
        verdicts.add(outcome.verdict)
    assert machine.gauges().waiting == 0
    return verdicts.pop()


def test_registers_get_the_verdict_of_one_check() -> None:
    compared = {"accepted": 0, "rejected": 0}
    for seed in range(250):
        rng = Random(seed)
        history = random_history(rng)
        settings = Settings(rng.choice(LEVELS), clock_drift_ns=rng.choice((0, 10**9)))
        expected = verdict(history, settings)
        try:
            found = replayed(history, settings, rng.choice((1, 2)))
        except HistoryError:
            continue
        assert found == expected, f"seed {seed}, {settings}: {show(history)}"
        compared[expected] += 1
    assert min(compared.values()) > 30, compared


def test_lists_get_the_verdict_of_one_check_or_are_refused() -> None:
    compared = {"accepted": 0, "rejected": 0}
    refused = 0
    for seed in range(250):
        rng = Random(seed)
        database = rng.choice(("serial", "snapshot", "read-committed"))
        size = rng.randrange(4, 16)
        try:
            history = simulate(
                database,
                Workload(
                    3, size, keys=2, lists=True, read_fraction=0.6, abort_probability=0.1, step_ns=10**9, seed=seed
                ),
            )
        except KeyError:
            history = simulate("snapshot", Workload(3, size, keys=2, lists=True, read_fraction=0.7, seed=seed))
        settings = Settings(rng.choice(("serializable", "strong-session-si")))
        expected = verdict(history, settings)
        try:
            found = replayed(history, settings)
        except HistoryError:
            refused += 1
            continue
        assert found == expected, f"seed {seed}, {settings}: {show(history)}"
        compared[expected] += 1
    assert min(compared.values()) > 8, (compared, refused)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[x+=1] [x+=2] | [x==(1 2)] [x==(2)]", "contradict each other"),
        ("[x+=1] | [x==(1 7)]", "element 7 was read, and nobody committed it"),
        ("[x+=1]! | [x==(1)]", "element 1 was read, and nobody committed it"),
        ("[x+=1] | [x+=2<7] | [x==(1 2)]", "element 2 replaced another one than lists show before it"),
        ("[x+=1 x+=3] | [x+=2] | [x==(1 2 3)]", "apart in a list"),
        ("[x+=1] | [x+=1] | [x==(1)]", "was appended twice"),
    ],
)
def test_lists_that_the_wire_cannot_say_are_refused_with_the_key(text: str, why: str) -> None:
    with pytest.raises(HistoryError, match=why) as error:
        as_registers(h(text))
    assert "key 'x'" in str(error.value)


def test_an_append_replaces_the_element_before_it() -> None:
    made = as_registers(h("[x+=1] | [x+=2 x+=3] | [x==(1 2 3)] | [x+=4]"))
    assert show(made) == "[x:=1<_] | [x:=2<1 x:=3<2] | [x==3] | [x:=4]"
    assert Kind.READ_LIST not in made.kind


def test_no_order_is_made_up_for_appends_that_nobody_read() -> None:
    """The one in doubt took effect, so it is not known which of the two replaced the initial version of y."""
    history = h("[x+=2 y+=3]? | [x==(2) y+=5]")
    assert show(as_registers(history)) == "[x:=2<_ y:=3]? | [x==2 y:=5]"
    assert replayed(history, Settings("serializable")) == verdict(history, Settings("serializable")) == "accepted"


def test_a_list_that_one_in_doubt_read_shows_no_order_unless_somebody_saw_that_it_took_effect() -> None:
    assert show(as_registers(h("[x+=1] | [x+=2] | [x==(1 2)]?"))) == "[x:=1] | [x:=2] | [x==2]?"
    seen = h("[x+=1] | [x+=2] | [x==(1 2) y:=1]? | [y==1]")
    assert show(as_registers(seen)) == "[x:=1<_] | [x:=2<1] | [x==2 y:=1]? | [y==1]"


def test_lists_of_every_status_get_the_verdict_of_one_check_or_are_refused() -> None:
    compared = {"accepted": 0, "rejected": 0}
    in_doubt = 0
    for seed in range(700):
        rng = Random(seed)
        history = random_history(rng, list_share=0.8, in_doubt_share=0.4)
        settings = Settings(rng.choice(LEVELS), clock_drift_ns=rng.choice((0, 10**9)))
        try:
            found = replayed(history, settings, rng.choice((1, 2)))
        except HistoryError:
            continue
        expected = verdict(history, settings)
        assert found == expected, f"seed {seed}, {settings}: {show(history)}"
        compared[expected] += 1
        in_doubt += bool((history.status == Status.IN_DOUBT).any())
    assert min(*compared.values(), in_doubt) > 60, (compared, in_doubt)


def test_values_that_repeat_and_are_read_are_refused() -> None:
    with pytest.raises(HistoryError, match="'x': value 1 was written more than once and read"):
        streams(h("[x:=1] | [x:=1] | [x==1]"), START_NS)
    streams(h("[x:=1] | [x:=1] | [y:=1]"), START_NS)


def test_versions_that_nobody_wrote_are_settled_from_the_start() -> None:
    (stream,) = streams(h("[x==7] | [y:=1]"), START_NS, seed=3)
    (sent,) = stream
    progress = sent.fragment.write_ids[0]
    assert (progress.settled, progress.drawn) == (3, 3)


def test_sessions_are_open_from_the_first_fragment_to_the_last() -> None:
    history = blindw(5, 3 * FRAGMENT_TXNS, 50, 2, 0.5)
    for number, stream in enumerate(streams(history, START_NS, collectors=2)):
        sent = [each.fragment for each in stream]
        sessions = list(range(number, 5, 2))
        opened = [(event.what, event.session, event.fenced) for event in sent[0].session_event]
        assert opened == [(SessionEvent.OPEN, session, False) for session in sessions]
        assert [event.session for event in sent[-1].session_event] == sessions
        assert {event.what for event in sent[-1].session_event} == {SessionEvent.CLOSE}
        assert [each.sequence for each in sent] == list(range(1, len(sent) + 1))


def test_a_history_goes_into_a_daemon_at_the_speed_it_is_told(data: Path, tmp_path: Path, mussurana: Command) -> None:
    path = tmp_path / "skew.mus"
    save(h("[x==_ y:=1]@1..1.4 | [y==_ x:=2]@1..1.5 | [z:=3]@1.6..2"), path)
    make = machine_factory(load(None, {}, {}))
    with running(data, make, check_fragment(), settings={"rounds_interval_seconds": "0.05"}) as daemon:
        ran = mussurana("replay", path, "--to", daemon.address, "--speed", "2", "--collectors", "2")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("3 transactions in 3 sessions sent in 0.")
        until(lambda: is_verified(daemon) and daemon.service.violations.summaries(), 60)
        ran = mussurana("verdicts", "--address", daemon.address)
        assert "write skew (G2-item)" in ran.out
        (found,) = daemon.service.violations.summaries()
        ran = mussurana("explain", found.id, "--address", daemon.address)
        assert "T1 comes before T2, because T1 read" in ran.out


def test_a_history_that_cannot_be_sent_is_refused_before_anything_is(tmp_path: Path, mussurana: Command) -> None:
    path = tmp_path / "lists.mus"
    save(h("[x+=1] | [x+=2] | [x==(1)] | [x==(2)]"), path)
    ran = mussurana("replay", path, "--to", "127.0.0.1:9")
    assert (ran.code, ran.out) == (3, "")
    assert "use `mussurana check`" in ran.err
