"""A daemon with the real machine, and collectors that send it what they like."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from bench.online.daemon import DaemonProcess
from mussurana.verifier.commands.serve import check_fragment, machine_factory
from mussurana.verifier.daemon.configured import load
from mussurana.wire import PROTOCOL
from mussurana.wire.history_pb2 import Fragment, Hello, Upload
from tests.daemon.collector import TestCollector
from tests.daemon.conftest import QUICK, Running, running
from tests.rounds.feeding import fragment, tag


@contextmanager
def real(data: Path, **flags: str) -> Iterator[Running]:
    config = load(None, {}, {**QUICK, "data": str(data), **flags})
    with running(data, machine_factory(config), check_fragment(), settings=flags) as daemon:
        yield daemon


class Sender(TestCollector):
    """A collector, named by a letter, whose transactions are in the words of `tests/rounds/feeding.py`."""

    __test__ = False

    def __init__(
        self,
        daemon: Running | DaemonProcess,
        letter: str,
        *,
        id: bytes = b"",
        secret: bytes = b"",
        first_sequence: int = 1,
    ) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        super().__init__(daemon.address, id or os.urandom(16), say_hello=False, options=options)
        self.letter = letter
        hello = Hello(protocol=PROTOCOL, collector=self.id, name=letter, first_sequence=first_sequence, secret=secret)
        self.send_bytes(Upload(hello=hello).SerializeToString())
        self.durable = next(self.answers).welcome.durable_sequence
        self.sequence = self.durable

    def make(self, *txns: str, settled: int = 100_000) -> Fragment:
        self.sequence += 1
        made = fragment(self.sequence, *txns)
        made.sealed_ns = time.time_ns()
        made.write_ids.add(tag=tag(self.letter), settled=settled)
        return made

    def tell(self, *txns: str, settled: int = 100_000) -> None:
        """Send transactions, and wait until they are durable."""
        self.send(self.make(*txns, settled=settled))
        self.wait_durable(self.sequence)


def ended(collect: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """How the daemon answered something that it does not like."""
    try:
        collect()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("nothing was refused")


def skew(letter: str, counter: int) -> tuple[str, str]:
    """Two transactions that no serial order explains."""
    return f"0 u==0 v:={letter}{counter}<0", f"1 v==0 u:={letter}{counter + 1}<0"
