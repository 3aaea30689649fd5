"""When a bar counts as reached."""

from bench.bars import Figures, Row, judge

TEN_K: Row = ("blindw-rw-10k", "serializable")
HALF: Row = ("hot-keys-50k", "serializable")
WHOLE: Row = ("hot-keys-100k", "serializable")


def met(rows: dict[Row, Figures | None]) -> list[bool]:
    return [judgement.met for judgement in judge(rows)]


def test_a_time_up_to_the_bar_meets_it_and_a_longer_one_does_not() -> None:
    assert met({TEN_K: {"seconds": 0.15}}) == [True]
    assert met({TEN_K: {"seconds": 0.151}}) == [False]


def test_growth_is_judged_against_the_smaller_history() -> None:
    assert met({HALF: {"seconds": 2.0}, WHOLE: {"seconds": 5.0}}) == [True, True]
    assert met({HALF: {"seconds": 1.0}, WHOLE: {"seconds": 5.0}}) == [True, False]


def test_growth_without_the_smaller_history_is_not_judged() -> None:
    assert met({WHOLE: {"seconds": 5.0}}) == [True]


def test_a_scenario_without_a_valid_result_misses_its_bars() -> None:
    assert met({TEN_K: None}) == [False]
    assert met({HALF: None, WHOLE: {"seconds": 5.0}}) == [True, False]


def test_a_scenario_without_a_bar_is_not_judged() -> None:
    assert met({("blindw-rw-10k", "adya-si"): {"seconds": 1000.0}}) == []


def test_a_missed_bar_is_told_with_value_and_limit() -> None:
    (judgement,) = judge({TEN_K: {"seconds": 0.3}})
    assert judgement.short == "0.15 s MISSED"
    assert judgement.sentence == "blindw-rw-10k, serializable: time 0.3 s, at most 0.15 s"


def test_a_missed_growth_is_told_as_a_multiple() -> None:
    _, growth = judge({HALF: {"seconds": 1.0}, WHOLE: {"seconds": 3.0}})
    assert growth.short == "2.5 x hot-keys-50k MISSED"
    assert growth.sentence.endswith("time 3 times, at most 2.5 times the time of hot-keys-50k at serializable")
