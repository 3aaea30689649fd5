from __future__ import annotations

from random import Random

import pytest

from mussurana.verifier.history import INITIAL, NO_VALUE, UNKNOWN_TIME, Kind, Status
from tests.notation import h, show
from tests.random_history import random_history


def test_sessions_are_separated_by_bars_or_lines() -> None:
    assert h("[x:=1] [y==2] | [x==1]").session.tolist() == [0, 0, 1]
    assert show(h("[x:=1] [y==2] | [x==1]")) == show(h("\n  [x:=1] [y==2]\n  [x==1]\n"))


def test_every_kind_of_operation_is_read() -> None:
    history = h("[x:=1 x:=-2<1 y:=3<_ x==-2 y==_ z+=4 z==(4 5) z==()]")
    assert history.kind.tolist() == [
        Kind.WRITE,
        Kind.WRITE,
        Kind.WRITE,
        Kind.READ,
        Kind.READ,
        Kind.APPEND,
        Kind.READ_LIST,
        Kind.READ_LIST,
    ]
    assert [history.key_names[key] for key in history.key] == ["x", "x", "y", "x", "y", "z", "z", "z"]
    assert history.value.tolist() == [1, -2, 3, -2, INITIAL, 4, 5, INITIAL]
    assert history.previous.tolist()[:3] == [NO_VALUE, 1, INITIAL]
    assert history.list_seen(6) == [4, 5]
    assert history.list_seen(7) == []


def test_suffixes_tell_the_status() -> None:
    assert h("[] []! []?@1..").status.tolist() == [Status.COMMITTED, Status.ABORTED, Status.IN_DOUBT]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ("", (None, None, None, None)),
        ("@10..20", (10, None, None, 20)),
        ("@10-11..19-20", (10, 11, 19, 20)),
        ("@10..", (10, None, None, None)),
        ("@..0.5", (None, None, None, 0.5)),
        ("@1.25-2..3", (1.25, 2, None, 3)),
    ],
)
def test_times_are_seconds(times: str, seconds: tuple[float | None, ...]) -> None:
    history = h(f"[]{times}")
    columns = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
    expected = [UNKNOWN_TIME if second is None else int(second * 1e9) for second in seconds]
    assert [int(column[0]) for column in columns] == expected
    assert show(history) == f"[]{times}"


@pytest.mark.parametrize("text", ["x:=1", "[x=1]", "[x:=]", "[x:=1]@5", "[x:=1", "[x==1y]", "[x:=1]@3..2..1"])
def test_what_is_not_notation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        h(text)


def test_show_is_the_way_back() -> None:
    for seed in range(300):
        text = show(random_history(Random(seed)))
        assert show(h(text)) == text
