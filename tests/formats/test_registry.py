"""Which format a path holds, and what is said when it holds none."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from pathlib import Path

import pytest

from mussurana.verifier import formats
from mussurana.verifier.history import HistoryError, Status
from tests.formats.samples import Shape, random_history

PLAIN = Shape(
    session_name="J{}",
    key_name="{}",
    statuses=(Status.COMMITTED,),
    lists=False,
    times="none",
    previous=False,
    value_names=False,
)
ENDINGS = {"mussurana": ".mus", "elle-edn": ".edn", "elle-json": ".json", "text": ".txt"}


@pytest.mark.parametrize("name", [name for name, format in formats.FORMATS.items() if format.write is not None])
def test_what_is_saved_in_a_format_is_recognised_as_it(name: str, tmp_path: Path) -> None:
    history = random_history(random.Random(2), PLAIN)
    path = tmp_path / f"h{ENDINGS.get(name, '')}"
    formats.save(history, path, name)
    assert formats.detect(path) == name
    if path.is_file():
        path.rename(tmp_path / "unnamed")
        assert formats.detect(tmp_path / "unnamed") == name


def test_the_ending_of_a_new_file_says_its_format(tmp_path: Path) -> None:
    history = random_history(random.Random(2), PLAIN)
    for name, ending in ENDINGS.items():
        formats.save(history, tmp_path / f"h{ending}")
        assert formats.detect(tmp_path / f"h{ending}") == name


def test_unknown_files_list_the_formats(tmp_path: Path) -> None:
    (tmp_path / "h.bin").write_bytes(b"\0\1\2")
    with pytest.raises(
        HistoryError, match=r"h\.bin: not recognised as a history; formats: mussurana \(\*\.mus\); cobra"
    ):
        formats.load(tmp_path / "h.bin")


def test_unknown_format_names_list_the_formats(tmp_path: Path) -> None:
    (tmp_path / "h.mus").write_bytes(b"")
    with pytest.raises(HistoryError, match="no format is called 'mus'; formats: mussurana"):
        formats.load(tmp_path / "h.mus", "mus")
    with pytest.raises(HistoryError, match="the name does not tell which format to write; formats: mussurana"):
        formats.save(random_history(random.Random(2), PLAIN), tmp_path / "h")


def test_paths_that_are_not_there_are_named(tmp_path: Path) -> None:
    for format in (None, *formats.FORMATS):
        with pytest.raises(HistoryError, match="nowhere: no such file or folder"):
            formats.load(tmp_path / "nowhere", format)


def test_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="the folder is empty"):
        formats.load(tmp_path)
    for name in ("cobra", "viper"):
        with pytest.raises(HistoryError, match=r"expected a folder with a .*\.log file for each session, found none"):
            formats.load(tmp_path, name)


def test_what_can_be_read_only_once_is_read_if_its_format_is_given(tmp_path: Path) -> None:
    """Looking at how it begins would take that away from what is read after it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(HistoryError, match="pipe: what is read from here cannot be read twice, so say which format"):
        formats.load(pipe)
    history = random_history(random.Random(2), PLAIN)
    for name, ending in ENDINGS.items():
        formats.save(history, tmp_path / f"h{ending}", name)
        content = (tmp_path / f"h{ending}").read_bytes()
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        assert formats.load(pipe, name).fingerprint() == formats.load(tmp_path / f"h{ending}").fingerprint()
        writer.join()


def test_a_folder_without_a_history_lists_the_formats(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("nothing here")
    with pytest.raises(HistoryError, match="not recognised as a history; formats: "):
        formats.load(tmp_path)


def test_a_file_where_a_folder_is_expected_and_the_reverse(tmp_path: Path) -> None:
    (tmp_path / "h.edn").write_text("{}")
    for path, name in (
        (tmp_path / "h.edn", "cobra"),
        (tmp_path, "elle-edn"),
        (tmp_path, "mussurana"),
        (tmp_path, "dbcop"),
    ):
        with pytest.raises(HistoryError, match=str(tmp_path)):
            formats.load(path, name)


def test_no_format_raises_anything_but_history_errors_on_noise(tmp_path: Path) -> None:
    rng = random.Random(4)
    pieces = [
        b"{",
        b"}",
        b"[",
        b'"',
        b":type",
        b":ok",
        b"value",
        b"\xff",
        b"\n",
        b"S",
        b"C",
        bytes(8),
        b"r(1,2,3,4)",
        b"1",
        b" ",
    ]
    (tmp_path / "folder").mkdir()
    for _ in range(200):
        noise = b"".join(rng.choices(pieces, k=rng.randint(0, 12)))
        (tmp_path / "file").write_bytes(noise)
        (tmp_path / "folder" / "J1.log").write_bytes(noise)
        for name in formats.FORMATS:
            path = tmp_path / ("folder" if name in ("cobra", "viper") else "file")
            with contextlib.suppress(HistoryError):
                formats.load(path, name)
