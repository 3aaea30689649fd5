"""Time never goes back, neither stands still nor stays wrong, and starts no earlier than what is on disk."""

from __future__ import annotations

from mussurana.verifier.daemon.clock import Clock

SECOND_NS = 10**9


class Times:
    def __init__(self) -> None:
        self.wall_ns, self.monotonic_ns = 1000 * SECOND_NS, 5 * SECOND_NS
        self.clock = Clock(lambda: self.wall_ns, lambda: self.monotonic_ns)
        self.leaps: list[float] = []
        self.clock.leapt = self.leaps.append

    def pass_ns(self, elapsed_ns: int) -> None:
        self.wall_ns += elapsed_ns
        self.monotonic_ns += elapsed_ns


def test_it_is_the_wall_clock() -> None:
    times = Times()
    times.pass_ns(SECOND_NS)
    assert times.clock.now_ns() == times.wall_ns


def test_a_clock_set_back_goes_on_at_half_speed_until_the_wall_clock_has_caught_up() -> None:
    times = Times()
    before_ns = times.clock.now_ns()
    times.wall_ns -= 10 * SECOND_NS
    times.pass_ns(4 * SECOND_NS)
    assert abs(times.clock.now_ns() - before_ns - 2 * SECOND_NS) < 10
    assert 7.9 < times.clock.ahead_seconds() < 8.1
    for _ in range(30):
        times.pass_ns(SECOND_NS)
        times.clock.now_ns()
    assert times.clock.now_ns() - times.wall_ns < 10
    times.pass_ns(SECOND_NS)
    assert times.clock.now_ns() == times.wall_ns
    assert times.clock.ahead_seconds() < 1e-6


def test_no_time_is_given_twice() -> None:
    times = Times()
    given = [times.clock.now_ns() for _ in range(100)]
    assert sorted(set(given)) == given


def test_after_a_restart_it_goes_on_from_the_last_time_on_disk() -> None:
    times = Times()
    times.clock.not_before(times.wall_ns + 3600 * SECOND_NS)
    assert times.clock.now_ns() > times.wall_ns + 3600 * SECOND_NS


def test_a_process_that_was_stopped_notices() -> None:
    """The monotonic clock went on meanwhile."""
    times = Times()
    times.pass_ns(3600 * SECOND_NS)
    times.clock.now_ns()
    assert times.leaps == [3600.0]
    for _ in range(100):
        times.pass_ns(SECOND_NS)
        times.clock.now_ns()
    assert len(times.leaps) == 1


def test_a_clock_that_was_set_forward_or_a_machine_that_slept_is_noticed() -> None:
    """The monotonic clock does not know of it."""
    times = Times()
    times.wall_ns += 3600 * SECOND_NS
    times.pass_ns(SECOND_NS // 10)
    times.clock.now_ns()
    assert times.leaps == [3600.1]


def test_a_clock_that_is_adjusted_or_set_back_is_no_leap() -> None:
    times = Times()
    for _ in range(1000):
        times.pass_ns(SECOND_NS)
        times.wall_ns += SECOND_NS // 2000  # as fast as a clock may be adjusted
        times.clock.now_ns()
    times.wall_ns -= 3600 * SECOND_NS
    for _ in range(10_000):
        times.pass_ns(SECOND_NS)
        times.clock.now_ns()
    assert times.leaps == []


def test_a_clock_that_is_set_back_and_forward_again_leaps_only_beyond_where_it_was() -> None:
    times = Times()
    times.wall_ns -= 100 * SECOND_NS
    times.pass_ns(SECOND_NS)
    times.clock.now_ns()
    times.wall_ns += 100 * SECOND_NS
    times.pass_ns(SECOND_NS)
    times.clock.now_ns()
    assert times.leaps == []
    times.wall_ns += 100 * SECOND_NS
    times.clock.now_ns()
    assert times.leaps == [100.0]
