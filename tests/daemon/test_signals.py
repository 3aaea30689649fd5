"""The daemon as a process: SIGTERM finishes cleanly, SIGHUP reads again, logs are JSON, the port is its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.online.ports import free_port
from tests.daemon.collector import TestCollector, fragment
from tests.daemon.crash import Daemon
from tests.daemon.watching import until

PORT = free_port()


def daemon(data: Path, *flags: str) -> Daemon:
    listen = ["--ingest-listen", f"127.0.0.1:{PORT}", "--http-listen", ""]
    made = Daemon([sys.executable, "-m", "tests.daemon.process", "--data", str(data), *listen, *flags])
    made.wait_ready()
    return made


def test_sigterm_drains_writes_a_checkpoint_and_ends_with_0(data: Path) -> None:
    running = daemon(data)
    with TestCollector(f"127.0.0.1:{PORT}") as collector:
        collector.send(*(fragment(n) for n in range(1, 50)))
        collector.wait_durable(49)
        lines = running.end(signal.SIGTERM)
        assert collector.status()[1] == "the verifier is shutting down"
    assert running.process.returncode == 0
    assert [line["event"] for line in lines if "event" in line][-2:] == ["ending", "ended"]
    assert len(list((data / "checkpoints").iterdir())) == 1
    again = daemon(data)
    with TestCollector(f"127.0.0.1:{PORT}") as collector:
        assert collector.durable == 49
    lines = again.end(signal.SIGINT)
    assert not any(line["level"] == "error" for line in lines)


def test_every_line_is_json_with_time_level_and_message(data: Path) -> None:
    running = daemon(data)
    with TestCollector(f"127.0.0.1:{PORT}") as collector:
        collector.send(fragment(5))
        collector.status()
    lines = running.end(signal.SIGTERM)
    assert all({"time", "level", "message", "event"} <= set(line) for line in lines)
    assert "fragment.sequence is 5; 1 was expected" in str(lines)


def test_sighup_reads_the_log_level_again(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('log_level = "info"\n')
    listen = ["--ingest-listen", f"127.0.0.1:{PORT}", "--http-listen", "", "--data", str(data)]
    program = "from mussurana.verifier.cli import main; main()"
    running = Daemon([sys.executable, "-c", program, "serve", "--config", str(config), *listen])
    running.wait_ready()
    config.write_text('log_level = "error"\n')
    running.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    with TestCollector(f"127.0.0.1:{PORT}") as collector:
        collector.send(fragment(1))
        collector.wait_durable(1)
    lines = running.end(signal.SIGTERM)
    assert [line["event"] for line in lines] == ["ready"]


def test_a_port_that_is_taken_is_named(data: Path, tmp_path: Path) -> None:
    running = daemon(data)
    flags = ["--data", str(tmp_path / "other"), "--ingest-listen", f"127.0.0.1:{PORT}", "--http-listen", ""]
    program = "from mussurana.verifier.cli import main; import sys; sys.exit(main())"
    second = subprocess.run(
        [sys.executable, "-c", program, "serve", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    running.end(signal.SIGTERM)
    assert second.returncode == 3
    assert second.stderr.splitlines()[-1].startswith(f"ingest.listen: 127.0.0.1:{PORT}")


def test_collectors_are_served_while_the_machine_is_being_loaded(data: Path) -> None:
    """The real machine takes seconds to import; fragments are taken meanwhile."""
    program = "from mussurana.verifier.cli import main; main()"
    flags = ["--data", str(data), "--ingest-listen", f"127.0.0.1:{PORT}", "--http-listen", ""]
    running = Daemon([sys.executable, "-c", program, "serve", *flags])
    running.wait_ready()
    with TestCollector(f"127.0.0.1:{PORT}") as collector:
        collector.send(fragment(1))
        collector.wait_durable(1)
    until(lambda: running.process.poll() is None)
    assert not any(line["level"] == "error" for line in running.end(signal.SIGTERM))
    assert running.process.returncode == 0
