"""What is measured in a directory that a user gives."""

from pathlib import Path

from bench.scenarios import LEVELS, recorded

ONE_WRITE = "w(1,1,0,0)\n"


def put(path: Path, content: str = ONE_WRITE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_every_history_below_a_directory_is_a_scenario_at_each_level(tmp_path: Path) -> None:
    put(tmp_path / "a.txt")
    put(tmp_path / "deep" / "down" / "b.edn", "{:type :ok}")
    found = [(scenario.name, scenario.level) for scenario in recorded(tmp_path)]
    assert found == [(name, level) for name in ("a.txt", "deep/down/b.edn") for level in LEVELS]


def test_what_is_not_a_history_is_no_scenario(tmp_path: Path) -> None:
    put(tmp_path / "README.md", "# Histories\n")
    put(tmp_path / "results.csv", "1,2\n")
    (tmp_path / "empty").mkdir()
    assert list(recorded(tmp_path)) == []


def test_a_history_can_be_given_itself(tmp_path: Path) -> None:
    history = put(tmp_path / "a.txt")
    assert {(scenario.name, scenario.paths) for scenario in recorded(history)} == {("a.txt", (history,))}


def test_a_folder_with_verdicts_is_one_scenario_per_level(tmp_path: Path) -> None:
    first, second = put(tmp_path / "many" / "a.txt"), put(tmp_path / "many" / "b" / "c.txt")
    verdicts = put(tmp_path / "many" / "verdicts.csv", "history,level,verdict\n")
    scenarios = list(recorded(tmp_path))
    assert [scenario.level for scenario in scenarios] == list(LEVELS)
    assert {(scenario.name, scenario.paths, scenario.verdicts) for scenario in scenarios} == {
        ("many", (first, second), verdicts)
    }
