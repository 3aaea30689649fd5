"""Whoever can write where a spool is, or make one there before us, gets nothing of ours and stops nobody."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from mussurana.collector.abandoned import complete
from mussurana.collector.recorder import COMMITTED, Recorder
from mussurana.collector.settings import Settings
from mussurana.collector.spool import DESTINATION, LOCK, Destination, folders, make_folder
from mussurana.collector.spool_folder import (
    ForeignSpool,
    default_spool,
    own_folder,
    own_name,
    refuse_foreign,
    temporary_spool,
)
from tests.collector.recording.ingest import Ingest, eventually
from tests.collector.recording.observed import commit, fragments, quick

OTHER = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def plant(spool: Path, verifier: str, token: Path) -> Path:
    """A folder as that of a process that is gone, which asks for a file to be sent as a token."""
    settings = Settings(spool=str(spool), verifier=verifier, token_file=str(token))
    folder = spool / f"{os.urandom(16).hex()}-0000000a"
    folder.mkdir(mode=0o700)
    (folder / LOCK).touch(mode=0o600)
    (folder / DESTINATION).write_text(json.dumps(asdict(Destination.of(settings))))
    complete(folder)
    return folder


def works_unrecorded(spool: Path, caplog: pytest.LogCaptureFixture) -> str:
    """The application goes on and nothing is recorded; returns the one warning."""
    caplog.clear()
    recorder = Recorder(quick(spool, verifier="127.0.0.1:9"))
    with caplog.at_level(logging.WARNING, "mussurana"):
        for _ in range(3):
            session = recorder.open_session("conn", fenced=False)
            commit(recorder, session, "a/1")
            session.close()
    assert (recorder.metrics.spool_failures, recorder.metrics.txns_lost) == (1, 3)
    recorder.close()
    (warning,) = [record.getMessage() for record in caplog.records]
    return warning


def shipper(spool: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mussurana.collector.shipper", str(spool)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_a_folder_that_others_could_write_is_refused_by_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    private = tmp_path / "private"
    private.write_text("nobody's business")
    spool = tmp_path / "spool"
    spool.mkdir()
    with Ingest() as verifier:
        plant(spool, verifier.address, private)
        spool.chmod(0o777)
        assert "could be written by others" in works_unrecorded(spool, caplog)
        assert "could be written by others" in works_unrecorded(spool, caplog), "until somebody has looked"
        refused = shipper(spool)
        _, said = refused.communicate(timeout=60)
        assert refused.returncode == 1
        assert f"chmod go-w {spool}" in said
        assert verifier.tokens == []
    spool.chmod(0o755)  # somebody has looked
    recorder = Recorder(quick(spool))
    recorder.start()
    recorder.close()
    assert mode(spool) == 0o700


def test_what_is_planted_in_a_folder_of_ours_is_left_alone(tmp_path: Path) -> None:
    private, spool = tmp_path / "private", tmp_path / "spool"
    private.write_text("nobody's business")
    spool.mkdir(mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Ingest() as verifier:
        open_to_all, linked, hard, soft = (plant(spool, verifier.address, private) for _ in range(4))
        open_to_all.chmod(0o777)
        linked.rename(elsewhere / linked.name)
        linked.symlink_to(elsewhere / linked.name)
        os.link(private, hard / "journal-0")
        (soft / "journal-1").symlink_to(private)
        for folder in (open_to_all, linked, hard, soft):
            with pytest.raises(ForeignSpool, match="left alone"):
                refuse_foreign(folder)
        good = plant(spool, verifier.address, tmp_path / "token")
        (tmp_path / "token").write_text("good")
        running = shipper(spool)
        assert eventually(lambda: not good.exists(), 30)
        running.terminate()
        _, said = running.communicate(timeout=60)
        assert said.count("left alone") == 4
        assert set(verifier.tokens) == {"Bearer good"}
    assert len(folders(spool)) == 4


@AS_ROOT
def test_a_folder_that_somebody_else_made_before_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    planted, link = tmp_path / own_name(), tmp_path / "link"
    planted.mkdir(mode=0o777)
    os.chown(planted, OTHER, OTHER)
    assert "belongs to somebody else" in works_unrecorded(planted, caplog)
    (tmp_path / "home").mkdir()
    link.symlink_to(tmp_path / "home")
    os.lchown(link, OTHER, OTHER)
    assert "a link that somebody else made" in works_unrecorded(link, caplog)
    assert list((tmp_path / "home").iterdir()) == []
    os.lchown(link, 0, 0)
    assert own_folder(link) == link


@AS_ROOT
@pytest.mark.parametrize("shared", [0o777, 0o1777, 0o2775])
def test_a_place_that_is_shared_gets_a_folder_of_ours(tmp_path: Path, shared: int) -> None:
    """As an emptyDir, which belongs to root and its group gets."""
    place = tmp_path / "shared"
    place.mkdir()
    os.chown(place, OTHER, OTHER)
    place.chmod(shared)
    recorder = Recorder(quick(place))
    commit(recorder, recorder.open_session("conn", fenced=False), "a/1")
    recorder.close()
    own = place / own_name()
    assert mode(own) == 0o700
    assert fragments(own)
    for path in own.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_the_default_is_a_folder_that_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, state, home = tmp_path / "service", tmp_path / "state", tmp_path / "home"
    for folder in (service, state, home):
        folder.mkdir()
    everything = {"STATE_DIRECTORY": f"{service}:/other", "XDG_STATE_HOME": str(state), "HOME": str(home)}
    expected = [service, state, home / ".local" / "state"]
    for name, folder in zip(list(everything), expected, strict=True):
        assert default_spool(everything) == str(folder / own_name())
        del everything[name]
    assert default_spool({"HOME": str(home), "XDG_STATE_HOME": "relative"}) == str(home / ".local/state" / own_name())
    own = own_folder(Path(default_spool({"HOME": str(home)})))
    assert [mode(folder) for folder in (own, *list(own.parents)[:2])] == [0o700] * 3
    if os.geteuid() == 0:
        os.chown(home, OTHER, OTHER)  # as with sudo
        assert default_spool({"HOME": str(home)}) != temporary_spool()  # what is below it is ours already
        os.chown(home / ".local" / "state", OTHER, OTHER)
        os.chown(own, OTHER, OTHER)
    else:
        home.chmod(0o500)
        (home / ".local" / "state").chmod(0o500)
    assert default_spool({"HOME": str(home)}) == temporary_spool()


def test_what_was_left_where_the_spool_was_before_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    before = Path(temporary_spool())
    assert before.parent == tmp_path
    with Ingest() as verifier:
        folder, lock = make_folder(quick(before, verifier=verifier.address), os.urandom(16), 10)
        os.close(lock)
        recorder = Recorder(Settings(verifier=verifier.address))
        assert recorder.settings.spool == str(state / own_name())
        recorder.open_session("conn", fenced=False)
        assert eventually(lambda: not folder.exists(), 30)
        recorder.close()


@AS_ROOT
def test_processes_of_another_user_ship_what_is_theirs(tmp_path: Path) -> None:
    """A container that is started again as another user finds a folder that it cannot open, and makes its own."""
    tmp_path.chmod(0o777)
    place = tmp_path / "shared"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    for folder in tmp_path.parents:
        if "pytest" in str(folder):  # all of these are for their user only
            folder.chmod(0o755)
    os.chown(place, 12345, OTHER)
    codes = []
    for user in (OTHER, 4711):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(OTHER)
                os.setuid(user)
                recorder = Recorder(quick(place))
                session = recorder.open_session("conn", fenced=False)
                session.end(session.begin(), COMMITTED)
                recorder.close()
                code = recorder.metrics.spool_failures
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert codes == [0, 0]
    assert {path.name for path in place.iterdir()} == {f"mussurana-{OTHER}", "mussurana-4711"}
