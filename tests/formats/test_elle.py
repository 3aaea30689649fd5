"""Jepsen histories in EDN and JSON: what they mean, and where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.formats.edn import Keyword, named, notation, parse, printed
from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, HistoryError, Kind, Status


def edn(path: Path, content: str) -> History:
    (path / "h.edn").write_text(content)
    return formats.load(path / "h.edn")


def as_json(path: Path, content: str) -> History:
    (path / "h.json").write_text(content)
    return formats.load(path / "h.json")


def left_out(history: History) -> dict[str, int]:
    return {note.what: note.count for note in history.left_out}


UNKNOWN_READS = "reads whose result is unknown, in transactions that failed or are in doubt"


def test_invocations_and_completions_make_transactions(tmp_path: Path) -> None:
    history = edn(
        tmp_path,
        """{:index 0, :type :invoke, :process 3, :f :txn, :time 5, :value [[:append 1 1] [:r 2 nil]]}
           {:index 1, :type :invoke, :process 4, :f :txn, :time 6, :value [[:append 2 1]]}
           {:index 2, :type :ok, :process 4, :f :txn, :time 7, :value [[:append 2 1]]}
           {:index 3, :type :ok, :process 3, :f :txn, :time 9, :value [[:append 1 1] [:r 2 [1]]]}
           {:index 4, :type :invoke, :process 4, :f :txn, :time 10, :value [[:r 1 nil]]}
           {:index 5, :type :ok, :process 4, :f :txn, :time 11, :value [[:r 1 nil]]}""",
    )
    assert [history.session_names[s] for s in history.session] == ["3", "4", "4"]
    assert list(history.txn_names) == ["0", "1", "4"]
    assert history.begin_ns.tolist() == [5, 6, 10]
    assert history.committed_ns.tolist() == [9, 7, 11]
    assert history.kind.tolist() == [Kind.APPEND, Kind.READ_LIST, Kind.APPEND, Kind.READ_LIST]
    assert history.list_seen(1) == [1]
    assert history.list_seen(3) == []
    assert history.value.tolist()[3] == INITIAL


def test_failed_is_aborted_and_unanswered_is_in_doubt(tmp_path: Path) -> None:
    history = edn(
        tmp_path,
        """{:type :invoke, :process 0, :f :txn, :time 1, :value [[:w 1 1] [:r 1 nil]]}
           {:type :fail, :process 0, :f :txn, :time 2, :value [[:w 1 1] [:r 1 nil]]}
           {:type :invoke, :process 1, :f :txn, :time 3, :value [[:w 1 2] [:r 1 nil]]}
           {:type :info, :process 1, :f :txn, :time 4, :value [[:w 1 2] [:r 1 nil]], :error [:timeout "x"]}
           {:type :invoke, :process 2, :f :txn, :time 5, :value [[:w 1 3]]}""",
    )
    assert history.status.tolist() == [Status.ABORTED, Status.IN_DOUBT, Status.IN_DOUBT]
    assert history.committed_ns.tolist() == [UNKNOWN_TIME] * 3
    assert history.value.tolist() == [1, 2, 3]
    assert left_out(history) == {UNKNOWN_READS: 2}


def test_nil_in_a_register_is_the_initial_version(tmp_path: Path) -> None:
    history = edn(tmp_path, "{:type :ok, :process 0, :f :txn, :value [[:w 1 5] [:r 2 nil] [:r 1 5]]}")
    assert history.kind.tolist() == [Kind.WRITE, Kind.READ, Kind.READ]
    assert history.value.tolist() == [5, INITIAL, 5]


def test_without_processes_each_transaction_is_a_session(tmp_path: Path) -> None:
    history = edn(
        tmp_path,
        """[{:index 0 :type :invoke :value [[:append 1 1]]} {:index 1 :type :ok :value [[:append 1 1]]}
            {:index 2 :type :invoke :value [[:r 1 nil]]}    {:index 3 :type :ok :value [[:r 1 [1]]]}]""",
    )
    assert history.session.tolist() == [0, 1]
    assert history.status.tolist() == [Status.COMMITTED, Status.COMMITTED]


def test_other_operations_are_left_out_and_counted(tmp_path: Path) -> None:
    history = edn(
        tmp_path,
        """{:type :info, :f :start, :process :nemesis, :value nil}
           #jepsen.history.Op{:type :invoke, :f :txn, :process 0, :value [[:w 1 1]]}
           {:type :info, :f :start, :process :nemesis, :value #{"n1"}}
           {:type :ok, :f :txn, :process 0, :value [[:w 1 1]]}""",
    )
    assert history.txn_count == 1
    assert left_out(history) == {"operations other than transactions (:f :start)": 2}


def test_values_that_are_not_numbers_are_named(tmp_path: Path) -> None:
    large = 2**70
    history = edn(
        tmp_path,
        f"""{{:type :ok, :process 0, :f :txn,
              :value [[:w :x :red] [:w "x" "red"] [:w "1" {large}] [:r :x :red] [:w 1 7]]}}""",
    )
    assert [history.value_name(v) for v in history.value.tolist()] == [":red", "red", str(large), ":red", "7"]
    assert [history.key_names[k] for k in history.key] == [":x", "x", '"1"', ":x", "1"]
    assert history.value[0] == history.value[3]


def test_json_says_the_same_as_edn(tmp_path: Path) -> None:
    operations = [
        '{"type": "invoke", "f": "txn", "process": 0, "time": 1, "value": [["append", 1, 1], ["r", 2, null]]}',
        '{":type": ":ok", ":f": ":txn", ":process": 0, ":time": 2, ":value": [[":append", 1, 1], [":r", 2, [5, "a"]]]}',
    ]
    for content in ("\n".join(operations), "[" + ",\n".join(operations) + "]\n"):
        history = as_json(tmp_path, content)
        assert history.status.tolist() == [Status.COMMITTED]
        assert history.begin_ns.tolist() == [1]
        assert [history.value_name(v) for v in history.list_seen(1)] == ["5", "a"]


OK = "{:type :invoke, :process 0, :f :txn, :value [[:w 1 1]]}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected maps with :type, :f :txn and :value, found no transaction"),
        ("{:type :invoke, :f :read}", "found no transaction among 1 operations"),
        (OK + " {:type :ok, :value [[:w 1", "line 2, column 22: this '[' is never closed"),
        (OK + "{:type :ok)", "line 2, column 11: expected '}', found ')'"),
        (OK + "  }", "line 2, column 3: '}' closes nothing"),
        (OK + '{:type "ok', "line 2, column 8: this string does not end"),
        (OK + "{:type}", "line 2, column 1: expected keys and values in turn"),
        (OK + "{:a #tag}", "line 2, column 5: expected a form after this tag"),
        (OK + "#_ {}", "line 2, column 1: discarded forms (#_) are not supported"),
        (OK + "{:a " + "9" * 5000 + "}", "line 2, column 5: this number has too many digits"),
        (OK + "[1 2]", "line 2, column 1: expected a map, found [1 2]"),
        (OK + "{:type :done, :process 0, :f :txn}", "line 2, column 1: expected :type :invoke, :ok, :fail or :info"),
        (OK + "{:type [:ok], :process 0, :f :txn}", "line 2, column 1: expected :type :invoke, :ok, :fail or :info"),
        (OK + OK, "line 2, column 1: process 0 has a transaction open already: line 1, column 1"),
        (
            OK + "{:type :ok, :process 1, :f :txn, :value []}",
            "line 2, column 1: expected an :invoke before this: process 1 has no transaction open",
        ),
        (
            OK + "{:type :ok, :process 0, :f :txn, :value [[:w 1 2]]}",
            "line 2, column 1: expected [:w 1 1], as invoked, found [:w 1 2]: line 1, column 1",
        ),
        (
            OK + "{:type :ok, :process 0, :f :txn, :value []}",
            "line 2, column 1: expected 1 operations, as invoked, found 0: line 1, column 1",
        ),
        ("\n{:type :invoke, :process 0, :f :txn}", "line 2, column 1: expected :value to be a vector of operations"),
        ("{:type :ok, :f :txn, :value [[:cas 1 2]]}", "line 1, column 1: expected [:r k v], [:w k v] or [:append k v]"),
        ("{:type :ok, :f :txn, :value [[:w 1 nil]]}", "line 1, column 1: expected a value to write, found [:w 1 nil]"),
        ("{:type :ok, :f :txn, :time :now, :value []}", "line 1, column 1: expected :time in nanoseconds, found :now"),
        (
            "{:type :ok, :f :txn, :value [[:w 1 2]]}\n{:type :ok, :f :txn, :value [[:append 1 3]]}",
            "line 2, column 1: key 1 is used as a list and as a register: line 1, column 1",
        ),
    ],
)
def test_malformed_edn_names_line_and_column(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        edn(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path}/h.edn: ")
    assert message in str(caught.value)


OBJECT = '{"type": "ok", "f": "txn", "process": 0, "value": []}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OBJECT + '\n{"type": ', "line 2, column 10: not JSON: Expecting value"),
        (f"[{OBJECT},\n 5]", "line 2, column 2: expected an object, found 5"),
        (f"[{OBJECT}\n {OBJECT}]", "line 2, column 2: expected ',' or ']'"),
        (f"[{OBJECT},\n ]", "line 2, column 2: expected another value after the comma, found ']'"),
        (f"[{OBJECT}\n", "line 2, column 1: expected ',' or ']'"),
        ("[", "line 1, column 2: expected ']', but the file ends"),
        (f"[{OBJECT}]\n{OBJECT}", "line 2, column 1: expected the end of the file"),
        ('{"type": "ok", "time": ' + "1" * 5000 + "}", "line 1, column 1: a number in this value has too many digits"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_json_names_line_and_column(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        as_json(tmp_path, content)
    assert message in str(caught.value)


def test_edn_of_every_kind_is_read() -> None:
    text = """; comment
    #foo{:a #inst "2020", "q\\n\\u0041\\"" \\c, ##NaN [1, 2 -3]} (1 2N 1.5M 1e3 foo/bar nil true) #{1} [:r 5 [1 2]]"""
    forms = [form for _, form in parse(text, Path())]
    assert forms == [
        {"a": "2020", 'q\nA"': "\\c", "##NaN": [1, 2, -3]},
        [1, 2, 1.5, 1000.0, "foo/bar", None, True],
        [1],
        [Keyword("r"), 5, [1, 2]],
    ]


@pytest.mark.parametrize(
    "form",
    [
        0,
        -5,
        2**80,
        1.5,
        True,
        None,
        Keyword("x"),
        "x",
        "1",
        "a b",
        "",
        ":x",
        'q"\\\n',
        "日本",
        "nil",
        [1, "a", Keyword("b")],
    ],
)
def test_printed_forms_find_their_way_back(form: object) -> None:
    assert named(printed(form)) == form
    assert type(named(printed(form))) is type(form)
    assert [again for _, again in parse(notation(form), Path())] == [form]


def test_different_forms_print_differently() -> None:
    forms: list[object] = [1, "1", Keyword("1"), 1.0, "true", True, "nil", None, "x", Keyword("x"), ":x", "[1]", [1]]
    assert len({printed(form) for form in forms}) == len(forms)
