"""Runs cases in a process of its own, which is ended when one takes too much time or memory.

A case may be inside a kernel, where no exception can reach it, and may be after all memory there is. So a watchdog in
another process looks at the processor time that the worker has taken, and the worker's address space has a limit.
Processor time, since others may be at work on the machine; a case that stands still fails by the clock.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal, NoReturn

CPU_SECONDS_MAX = 5.0
"""A search is told to give up after one second, and inputs are small: all else takes milliseconds."""

COMPILE_SECONDS_MAX = 90.0
"""A kernel that is called with new types is compiled first, for so long at most. A case that took too long gets this
time once; then the kernel is kept, and it has to do with the usual time."""

WALL_SECONDS_MAX = 60.0
"""For a case that waits for something that does not come."""

MEMORY_BYTES_MAX = 3 << 29
"""1.5 GiB beyond what the worker has at its start."""

GROWTH_BYTES_MAX = 256 << 20
"""A worker that has grown by so much over many cases makes room for a new one."""

CASES_PER_WORKER = 2_000
LOOK_SECONDS = 0.1
DUMP_SECONDS = 1.0
TICKS = os.sysconf("SC_CLK_TCK")

End = Literal["read", "refused", "failed", "slow", "memory", "died"]
Work = Callable[[str], tuple[End, str]]


@dataclass(frozen=True)
class Outcome:
    end: End
    message: str = ""

    @property
    def is_failure(self) -> bool:
        return self.end not in ("read", "refused")


def fatal(error: BaseException) -> bool:
    """Whether an error is for want of memory, or was raised because of one that is."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, MemoryError):
                return True
            todo += [one.__cause__, one.__context__]
    return False


class Worker:
    """Takes names of cases, one at a time. Not for threads."""

    def __init__(self, work: Work, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._work, self._memory_bytes_max = work, memory_bytes_max
        self._dump = tempfile.TemporaryFile()  # noqa: SIM115, closed in close()
        tasks, self._tasks = os.pipe()
        self._answers, answers = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._tasks)
            os.close(self._answers)
            self._serve(tasks, answers)
        os.close(tasks)
        os.close(answers)
        self.cases = 0
        self.is_ended = False
        self._size_at_start = self._size_bytes()

    def run(self, case: str, cpu_seconds_max: float) -> Outcome:
        self.cases += 1
        try:
            os.write(self._tasks, case.encode() + b"\n")
        except BrokenPipeError:
            return self._ended()
        started, before = monotonic(), self._cpu_seconds()
        answer = b""
        while not answer.endswith(b"\n"):
            if select.select([self._answers], [], [], LOOK_SECONDS)[0]:
                some = os.read(self._answers, 1 << 16)
                if not some:
                    return self._ended()
                answer += some
                continue
            cpu_seconds, seconds = self._cpu_seconds() - before, monotonic() - started
            if cpu_seconds > cpu_seconds_max or seconds > max(WALL_SECONDS_MAX, 3 * cpu_seconds_max):
                where = self._where()
                self.end()
                return Outcome("slow", f"still at it after {cpu_seconds:.0f} s of work, {seconds:.0f} s\n{where}")
        end, message = json.loads(answer)
        return Outcome(end, message)

    @property
    def is_worn(self) -> bool:
        """Whether the next case is to have a new worker."""
        grown = self._size_bytes() - self._size_at_start
        return self.is_ended or self.cases >= CASES_PER_WORKER or grown > GROWTH_BYTES_MAX

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._tasks)
            os.close(self._answers)
            self._dump.close()

    def _ended(self) -> Outcome:
        """It has ended by itself: a signal, or something called exit."""
        _, status = os.waitpid(self.pid, 0)
        self.is_ended = True
        os.close(self._tasks)
        os.close(self._answers)
        where = self._dumped()
        self._dump.close()
        return Outcome("died", f"the process ended with {os.waitstatus_to_exitcode(status)}\n{where}")

    def _where(self) -> str:
        """What Python code it is in, even inside of a kernel."""
        os.kill(self.pid, signal.SIGUSR1)
        waited_until = monotonic() + DUMP_SECONDS
        while monotonic() < waited_until and not self._dumped():
            select.select([], [], [], LOOK_SECONDS)
        return self._dumped()

    def _dumped(self) -> str:
        return os.pread(self._dump.fileno(), 1 << 16, 0).decode(errors="replace")

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def _size_bytes(self) -> int:
        with suppress(OSError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        return 0

    def _serve(self, tasks: int, answers: int) -> NoReturn:
        """In the worker: never returns."""
        try:
            faulthandler.enable(self._dump)
            faulthandler.register(signal.SIGUSR1, self._dump)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts the fuzzer does not mean the case
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            most = size + self._memory_bytes_max
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with os.fdopen(tasks) as lines:
                for case in lines:
                    os.write(answers, json.dumps(self._try(case.strip())).encode() + b"\n")
        except BaseException:
            os.write(self._dump.fileno(), traceback.format_exc().encode())
            os._exit(70)
        os._exit(0)

    def _try(self, case: str) -> tuple[End, str]:
        try:
            return self._work(case)
        except BaseException as error:
            told = "".join(traceback.format_exception(error, limit=-12))
            return "memory" if fatal(error) else "failed", told[-8_000:]


class Confined:
    """A worker, and another one when that has failed or is worn."""

    def __init__(self, work: Work, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._work, self._memory_bytes_max = work, memory_bytes_max
        self._worker: Worker | None = None

    def run(self, case: str, cpu_seconds_max: float = CPU_SECONDS_MAX) -> Outcome:
        outcome = self._run(case, cpu_seconds_max)
        if outcome.end == "slow" and cpu_seconds_max < COMPILE_SECONDS_MAX:
            if (patient := self._run(case, COMPILE_SECONDS_MAX)).is_failure:
                return patient
            return self._run(case, cpu_seconds_max)
        return outcome

    def _run(self, case: str, cpu_seconds_max: float) -> Outcome:
        if self._worker is None or self._worker.is_worn:
            self.end()
            self._worker = Worker(self._work, self._memory_bytes_max)
        outcome = self._worker.run(case, cpu_seconds_max)
        if outcome.is_failure:  # it may have left anything behind
            self.end()
        return outcome

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None
