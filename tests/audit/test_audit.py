"""The auditor against the brute-force oracle, its two ways to refute against each other, and certificates that lie."""

from __future__ import annotations

import tokenize
import tracemalloc
from dataclasses import replace
from itertools import combinations, permutations
from random import Random
from typing import Any

import pytest

from mussurana.verifier import audit as auditor
from mussurana.verifier import check, conclusions
from mussurana.verifier.audit import Audit, Rules, audit, refute, replay
from mussurana.verifier.certificate import certificate
from mussurana.verifier.history import INITIAL, NO_ROW, NO_VALUE, History, HistoryBuilder, Kind, Status
from mussurana.verifier.simulate import blindw
from mussurana.verifier.verdict import Accepted, Rejected, Settings
from tests.audit.forging import CHANGES, SERIAL, is_true, is_valid, upheld_forgery
from tests.brute_force import brute_force
from tests.fuzz.case import has_duplicates, make
from tests.notation import h, show
from tests.random_history import LEVELS, random_history, random_settings


@pytest.fixture(params=[auditor.ORDERS_MAX, 0], ids=["all orders", "conclusions"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of refuting."""
    monkeypatch.setattr(auditor, "ORDERS_MAX", request.param)
    monkeypatch.setattr(conclusions, "STEPS_MAX", 20_000)  # each of these histories takes hundreds, or no end of them


def certify(history: History, settings: Settings, **proof: Any) -> dict[str, Any]:
    return {
        "level": settings.level,
        "session_order": settings.session_order,
        "clock_drift_ns": settings.clock_drift_ns,
        "history": history.fingerprint(),
        **proof,
    }


def audit_witness(history: History, settings: Settings, order: list[int]) -> Audit:
    return audit(certify(history, settings, verdict="accepted", witness=order), history)


def audit_counterexample(history: History, settings: Settings, txns: list[int]) -> Audit:
    return audit(certify(history, settings, verdict="rejected", counterexample={"transactions": txns}), history)


def test_replay_agrees_with_its_slow_twin_on_every_order() -> None:
    valid_orders = 0
    for seed in range(400):
        rng = Random(seed)
        history, settings = random_history(rng, duplicates=seed % 3 == 0), random_settings(rng)
        taking_part = [
            t
            for t in range(history.txn_count)
            if history.status[t] == Status.COMMITTED or (history.status[t] == Status.IN_DOUBT and rng.random() < 0.7)
        ]
        serial = settings.level in SERIAL
        if len(taking_part) > (4 if serial else 3):
            continue
        numbers = taking_part if serial else [e for t in taking_part for e in (2 * t, 2 * t + 1)]
        for order in map(list, permutations(numbers)):
            expected = is_valid(history, settings, order)
            valid_orders += expected
            assert audit_witness(history, settings, order).ok == expected, (show(history), settings, order)
    assert valid_orders > 1000


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("level", LEVELS)
def test_refuting_everything_agrees_with_brute_force(level: str) -> None:
    rejected = unsure = 0
    for seed in range(1000):
        rng = Random(seed)
        history, settings = random_history(rng, duplicates=seed % 3 == 0), random_settings(rng, level)
        expected = not brute_force(history, settings)
        rejected += expected
        audited = audit_counterexample(history, settings, list(range(history.txn_count)))
        gave_up = audited.ok is None and has_duplicates(history)  # little follows from values that repeat
        assert gave_up or audited.ok == expected, (show(history), settings, audited.message)
        unsure += gave_up
    assert unsure < 5
    assert 150 < rejected < 850


def test_conclusions_agree_with_trying_every_order() -> None:
    """Of parts of histories as well, where others may have written what was seen."""
    refuted = 0
    for seed in range(4000):
        rng = Random(seed)
        history, settings = random_history(rng, duplicates=seed % 3 == 0), random_settings(rng)
        history = replace(history, past=rng.choice((0, 0, 0, 1, 2)))
        named = [t for t in range(history.txn_count) if rng.random() < 0.7]
        rules = Rules(certify(history, settings), history, set(named))
        expected = refute(rules, named).ok
        refuted += expected is True
        ok, message = conclusions.refute(rules, named, replay)
        assert ok == expected, (seed, show(history), settings, named, message)
    assert refuted > 500


@pytest.mark.usefixtures("way")
def test_no_part_of_an_acceptable_history_is_a_counterexample() -> None:
    for seed in range(3000):
        rng = Random(seed)
        history, settings = random_history(rng, duplicates=seed % 3 == 0), random_settings(rng)
        if brute_force(history, settings):
            some = [t for t in range(history.txn_count) if rng.random() < 0.6]
            assert not audit_counterexample(history, settings, some).ok, (show(history), settings, some)


@pytest.mark.usefixtures("way")
def test_no_forged_certificate_is_upheld_unless_it_happens_to_be_true() -> None:
    for seed in range(120):
        history, settings = make(seed)
        proof = certificate(check(history, settings), history)
        assert not upheld_forgery(history, proof), (show(history), settings)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_way_to_forge_makes_certificates_that_are_not_true(change: Any) -> None:
    """Else the test before would find nothing."""
    lies = 0
    for seed in range(60):
        history, settings = make(seed)
        proof = certificate(check(history, settings), history)
        lies += is_true(proof, history) and not is_true(change(Random(seed), proof, history), history)
    assert lies > 0


@pytest.mark.usefixtures("way")
def test_of_a_minimal_counterexample_nobody_can_be_left_out() -> None:
    """But where rows come back, or lists grow, the auditor may see through more than the engine does."""
    smaller = 0
    for seed in range(1600):
        rng = Random(seed)
        history, settings = random_history(rng), random_settings(rng)
        if (history.previous == NO_ROW).any() or (history.previous[history.kind == Kind.APPEND] != NO_VALUE).any():
            continue
        verdict = check(history, settings).verdict
        if not isinstance(verdict, Rejected) or verdict.counterexample.cases[0].steps == ():
            continue
        named = [transaction.txn for transaction in verdict.counterexample.transactions]
        assert audit_counterexample(history, settings, named).ok
        for some in combinations(named, len(named) - 1):
            smaller += 1
            assert not audit_counterexample(history, settings, list(some)).ok, (show(history), settings, some)
    assert smaller > 200


@pytest.mark.parametrize(
    "settings", [Settings("adya-si"), Settings("generalized-si"), Settings("serializable", session_order=False)],
    ids=lambda settings: settings.level,
)  # fmt: skip
def test_dozens_of_transactions_are_refuted_in_a_moment(settings: Settings) -> None:
    """Without session order, one read that saw another version takes many others to be told wrong."""
    sizes = []
    for seed in range(4):
        history = with_wrong_read(blindw(24, 1000, 300, 8, 0.3, seed), seed)
        result = check(history, settings)
        if isinstance(result.verdict, Rejected):
            named = [transaction.txn for transaction in result.verdict.counterexample.transactions]
            audited = audit(certificate(result, history), history)
            assert audited.ok, audited.message
            # Hardly anything was tried: nearly all of it follows.
            if len(named) > auditor.ORDERS_MAX:
                assert int(audited.message.split("(")[-1].split()[0]) <= 8 * len(named)
            sizes.append(len(named))
    assert max(sizes) > 20


def with_wrong_read(history: History, seed: int) -> History:
    """One read has seen another version of its key."""
    rng = Random(seed)
    value = history.value.copy()
    op = rng.choice([op for op in range(history.op_count) if history.kind[op] == Kind.READ])
    written = value[(history.kind == Kind.WRITE) & (history.key == history.key[op])]
    value[op] = rng.choice(written.tolist())
    return replace(history, value=value)


@pytest.mark.usefixtures("way")
def test_where_nothing_follows_both_orders_are_tried() -> None:
    text = "[x:=1] | [x:=2] | [y:=1] | [y:=2] | [x==1 y==1] | [x==1 y==2] | [x==2 y==1] | [x==2 y==2]"
    for settings in (Settings("adya-si"), Settings("serializable")):
        assert audit_counterexample(h(text), settings, list(range(8))).ok
        for one in range(4, 8):
            assert audit_counterexample(h(text), settings, [t for t in range(8) if t != one]).ok is False


def test_what_is_tried_matters_to_the_contradiction() -> None:
    bystanders = [f"[z:={t}]" for t in range(1, 13)]
    contradiction = "[x:=1] | [x:=2] | [y:=1] | [y:=2] | [x==1 y==1] | [x==1 y==2] | [x==2 y==1] | [x==2 y==2]"
    history = h(" | ".join([*bystanders, contradiction]))
    assert audit_counterexample(history, Settings("adya-si"), list(range(history.txn_count))).ok


@pytest.mark.parametrize(("write", "read"), [(":=1", "==1"), ("+=1", "==(1)")])
def test_many_in_doubt_who_were_seen_are_not_tried_both_ways(write: str, read: str) -> None:
    """Each saw what the one before wrote, and the last one, which committed, saw none of it."""
    count = 24
    links = [f"[a{t}{read} a{t + 1}{write}]?" for t in range(1, count)]
    history = h(" | ".join([f"[a1{write} b:=1]", *links, f"[a{count}{read} b==_]"]))
    assert audit_counterexample(history, Settings("adya-si"), list(range(count + 1))).ok


@pytest.mark.usefixtures("way")
def test_a_counterexample_needs_no_bystanders() -> None:
    history = h("[x==_ y==_ x:=1] [z:=1] | [x==_ y==_ y:=1] | [z==1 y==1]")
    settings = Settings("serializable")
    assert audit_counterexample(history, settings, [0, 2]).ok
    assert not audit_counterexample(history, settings, [0, 3]).ok


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[x==7] | [x:=1]", [0]),
        ("[x==7] | [x:=7]!", [0]),
        ("[x==1 x==2] | [x:=1] | [x:=2]", [0]),
        ("[x:=1 x==2] | [x:=2]", [0]),
        ("[x+=1 x==(1 2)] | [x+=2]", [0]),
        ("[x==(1) x==(1 2)] | [x+=1] [x+=2]", [0]),
        ("[x==1 x:=3<2] | [x:=1] | [x:=2]", [0]),
        ("[x==(1) x+=3<2] | [x+=1] | [x+=2]", [0]),
        ("[x+=3<2 x==(1 3)] | [x+=1] | [x+=2]", [0]),
        ("[x+=3 x+=4<2] | [x+=2]", [0]),
    ],
)
def test_what_one_transaction_shows_is_refuted_without_the_others(text: str, named: list[int]) -> None:
    assert audit_counterexample(h(text), Settings("adya-si"), named).ok


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "text",
    [
        "[x==1] | [x:=1 x:=2]",
        "[x==_ y==1] | [x:=1 y:=1]",
        "[x==(1)] | [x+=1 x+=2]",
        "[x==7] | [x:=7]? | [x:=7]",
        "[x==(1) x+=2<1] | [x+=1]",
        "[x+=3<2] | [x+=2<1] | [x+=1]",
    ],
)
def test_a_version_from_outside_proves_nothing(text: str) -> None:
    assert not audit_counterexample(h(text), Settings("serializable"), [0]).ok


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("text", ["[x==() x+=1<_]", "[x+=1<_ x+=2<1 x==(1 2)]", "[x+=2<1 x==(1 2) x+=3<2] | [x+=1<_]"])
def test_an_append_that_names_what_it_replaced_says_what_a_read_before_it_would(text: str) -> None:
    for level in LEVELS:
        settings = Settings(level)
        result = check(h(text), settings)
        assert isinstance(result.verdict, Accepted)
        assert audit(certificate(result, h(text)), h(text)).ok
        assert audit_counterexample(h(text), settings, list(range(h(text).txn_count))).ok is False


def test_too_many_orders_end_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    history, settings = h("[x==_ x:=1] | [x==_ x:=2] | [y:=1] | [y:=2]"), Settings("adya-si")
    assert audit_counterexample(history, settings, [0, 1, 2, 3]).ok
    monkeypatch.setattr(auditor, "STEPS_MAX", 20)
    monkeypatch.setattr(conclusions, "STEPS_MAX", 5)
    for orders_max in (4, 0):
        monkeypatch.setattr(auditor, "ORDERS_MAX", orders_max)
        audited = audit_counterexample(history, settings, [0, 1, 2, 3])
        assert audited.ok is None
        assert audited.message == "4 transactions have too many orders to try them all"


@pytest.mark.parametrize("count", [conclusions.NAMED_MAX - 1, 20 * conclusions.NAMED_MAX])
def test_a_counterexample_of_a_whole_history_costs_no_more_time_or_memory_than_there_is(count: int) -> None:
    """What holds of each order of so many is gigabytes, and to ask each pair of them takes minutes."""
    build = HistoryBuilder()
    for number in range(count):
        build.transaction(f"s{number}")
        build.read("x", INITIAL)
        build.write("x", number)
    tracemalloc.start()
    audited = audit_counterexample(build.finish(), Settings("serializable"), list(range(count)))
    assert tracemalloc.get_traced_memory()[1] < 400 << 20
    tracemalloc.stop()
    assert audited.ok is None
    assert audited.message == f"{count} transactions have too many orders to try them all"


@pytest.mark.usefixtures("way")
def test_a_counterexample_of_nobody_is_none() -> None:
    assert not audit_counterexample(h("[x==7]"), Settings("adya-si"), []).ok


HISTORY = "[x:=1] [x==1]? | [x==1 y:=1] | [y:=2]!"


@pytest.mark.parametrize(
    ("level", "order", "complaint"),
    [
        ("serializable", [0, 2], ""),
        ("serializable", [0, 1, 2], ""),
        ("serializable", [0], "the commit of transaction 2 is missing"),
        ("serializable", [0, 2, 3], "transaction 3 aborted"),
        ("serializable", [0, 2, 2], "transaction 2 aborted, or does not begin once and then commit once at place 4"),
        ("serializable", [0, 2, 4], "does not have"),
        ("serializable", [0, 2, -1], "does not have"),
        ("serializable", [2, 0], "transaction 2 could not have seen version 1 of x at place 0"),
        ("adya-si", [0, 1, 4, 5], ""),
        ("adya-si", [0, 1, 4], "the commit of transaction 2 is missing"),
        ("adya-si", [0, 1, 5, 4], "transaction 2 aborted, or does not begin once and then commit once at place 2"),
        ("adya-si", [0, 4, 1, 5], "transaction 2 could not have seen version 1 of x at place 1"),
        ("adya-si", [0, 1, 4, 5, 2], "the commit of transaction 1 is missing"),
        ("adya-si", [0, 1, 4, 5, 8], "does not have"),
    ],
)
def test_a_witness_that_lies_is_found_out(level: str, order: list[int], complaint: str) -> None:
    audited = audit_witness(h(HISTORY), Settings(level), order)
    assert audited.ok == (not complaint)
    assert complaint in audited.message


@pytest.mark.parametrize(
    ("text", "level", "order", "complaint"),
    [
        ("[] []", "serializable", [1, 0], "transaction 0 has to come before 1"),
        ("[] []", "strong-session-si", [0, 2, 1, 3], "transaction 0 has to come before 1"),
        ("[] []", "adya-si", [2, 3, 0, 1], ""),
        ("[]@0..1 | []@2..3", "strict-serializable", [1, 0], "transaction 0 has to come before 1"),
        ("[]@0..1 | []@2..3", "serializable", [1, 0], ""),
        ("[]@0..1 | []@2..3", "generalized-si", [0, 2, 1, 3], ""),
        ("[]@0..1 | []@2..3", "generalized-si", [2, 3, 0, 1], "transaction 0 has to come before 1"),
        ("[]@0..1 | []@2..3", "strong-si", [0, 2, 1, 3], "transaction 0 has to come before 1"),
        ("[x:=1] | [x:=2]", "adya-si", [0, 2, 1, 3], "overlaps one that writes the same key"),
    ],
)
def test_a_witness_keeps_the_order_of_sessions_and_times(
    text: str, level: str, order: list[int], complaint: str
) -> None:
    audited = audit_witness(h(text), Settings(level), order)
    assert audited.ok == (not complaint)
    assert complaint in audited.message


def test_a_certificate_is_about_one_history_only() -> None:
    settings = Settings("serializable")
    proof = certify(h("[x:=1] | [x==1]"), settings, verdict="accepted", witness=[0, 1])
    assert audit(proof, h("[x:=1] | [x==1]")).ok
    others = ("[x:=1] [x==1]", "[x:=1] | [x==1]@1..2", "[x:=1] | [x==1]?", "[x:=1]", "[x:=1<_] | [x==1]")
    for other in others:
        audited = audit(proof, h(other))
        assert not audited.ok
        assert "another history" in audited.message


def test_an_unknown_verdict_proves_nothing() -> None:
    audited = audit(certify(h("[x:=1]"), Settings("adya-si"), verdict="unknown", reason="budget"), h("[x:=1]"))
    assert not audited.ok


def test_a_key_is_a_register_or_a_list() -> None:
    audited = audit_witness(h("[x:=1 x+=2]"), Settings("serializable"), [0])
    assert not audited.ok
    assert audited.message == "x is both a list and a register"


@pytest.mark.parametrize(
    ("module", "ours"),
    [(auditor, {"mussurana.verifier", "mussurana.verifier.history"}), (conclusions, {"mussurana.verifier.history"})],
)
def test_the_auditor_knows_nothing_of_the_engine(module: Any, ours: set[str]) -> None:
    with open(module.__file__, encoding="utf-8") as file:
        imports = [line.split()[1] for line in file if line.startswith(("import ", "from "))]
    standard = {"__future__", "collections", "collections.abc", "itertools", "math", "typing"}
    assert set(imports) - standard == ours


@pytest.mark.parametrize(("module", "most"), [(auditor, 162), (conclusions, 90)])
def test_the_auditor_is_short_enough_to_be_read(module: Any, most: int) -> None:
    """Lines with code on them: neither empty, nor a comment, nor part of a docstring."""
    lines = set[int]()
    with open(module.__file__, encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.string.strip() and token.type != tokenize.COMMENT and not token.string.startswith('"""'):
                lines |= set(range(token.start[0], token.end[0] + 1))
    assert len(lines) <= most
