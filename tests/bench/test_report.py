"""Tables, pages and exit codes."""

import json
from pathlib import Path

import pytest

import bench.__main__ as command
from bench.machine import Machine
from bench.report import BEGIN, CHECK_COLUMNS, END, Report, Table, write_markdown
from bench.scenarios import Scenario
from bench.worker import Measurement

MACHINE = Machine("Abacus", 2, 4.0, "3.11", "2.0", "0.60", "abc1234", 0.1)
TEN_K = Scenario("cobra/blindw-rw-10k", "serializable", (Path("x"),))


def measurement(verdict: str = "accepted", total: float = 0.07, core_share: float = 1.0) -> Measurement:
    phases = {"load": 0.03, "build": 0.01, "prune": 0.02, "solve": 0.04, "explain": 0.0}
    mib = 2**20
    return Measurement(100, 4, [verdict], {**phases, "total": total}, [total], [total * core_share], 50 * mib, 80 * mib)


def test_a_quick_wrong_answer_misses_the_bar() -> None:
    right, wrong = Report(MACHINE, 1), Report(MACHINE, 1)
    right.add_check(TEN_K, measurement("accepted"))
    wrong.add_check(TEN_K, measurement("unknown"))
    assert right.passed
    assert not wrong.passed


def test_a_failed_check_fails_the_report_even_without_a_bar() -> None:
    report = Report(MACHINE, 1)
    report.add_failure(Scenario("other", "adya-si", (Path("x"),)), "killed")
    assert not report.passed
    assert report.summary() == ["FAILED: other, adya-si: killed"]


def test_ratio_to_the_peer_says_that_its_figure_is_given() -> None:
    report = Report(MACHINE, 1)
    report.add_check(TEN_K, measurement(total=0.07))
    (sentence,) = report.peer_sentences()
    assert "7 s and 633 MiB (given figures, not run beside us)" in sentence
    assert "100 times faster, with loading 70 times, in a process of 80 MiB" in sentence


def test_a_check_that_shared_its_core_is_pointed_out() -> None:
    report = Report(MACHINE, 1)
    report.add_check(TEN_K, measurement(core_share=0.5))
    assert "1 of 1 scenarios shared their core" in report.summary()[-1]


def test_columns_line_up() -> None:
    table = Table(CHECK_COLUMNS, {"history": 30, "level": 20, "verdict": 10})
    row = table.row(Report(MACHINE, 1).add_check(TEN_K, measurement()))
    assert row.index("30  0.15 s ok") + len("30  ") == table.header().index("bar")


def test_a_page_keeps_everything_outside_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Speed\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    report = Report(MACHINE, 1)
    report.add_check(TEN_K, measurement())
    write_markdown(report, page)
    write_markdown(report, page)
    text = page.read_text()
    assert text.startswith(f"# Speed\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nThe end.\n")
    assert "old" not in text
    assert text.count("| cobra/blindw-rw-10k | serializable | 100 | accepted |") == 1


@pytest.fixture
def any_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "use_one_core", lambda: None)  # it would pin the other tests as well


@pytest.mark.usefixtures("any_core")
def test_a_directory_of_histories_is_measured_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("w(1,1,0,0)\nr(1,1,1,1)\n")
    figures = tmp_path / "figures.json"
    assert command.main([str(tmp_path), "--only", "mine", "--repeat", "1", "--json", str(figures)]) == 0
    checks = json.loads(figures.read_text())["checks"]
    assert [(check["name"], check["level"], check["verdict"]) for check in checks] == [
        ("mine.txt", "serializable", "accepted"),
        ("mine.txt", "strong-session-si", "accepted"),
    ]
    assert capsys.readouterr().out.count("mine.txt") == 2


@pytest.mark.usefixtures("any_core")
def test_a_missed_bar_is_named_and_ends_in_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = tmp_path / "blindw-rw-10k"
    history.write_text("r(1,1,0,0)\n")  # a version that nobody wrote, where an accepted history is due
    assert command.main([str(history), "--only", "blindw-rw-10k", "--repeat", "1"]) == 1
    assert "MISSED: blindw-rw-10k, serializable: time no valid figure" in capsys.readouterr().out


@pytest.mark.usefixtures("any_core")
def test_a_name_that_fits_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([str(tmp_path), "--only", "no such thing"])
    assert ended.value.code == 2
    assert "no scenario has 'no such thing' in its name" in capsys.readouterr().err
