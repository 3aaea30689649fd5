"""The container file without an engine: built, confined, started and found healthy, with namespaces and mounts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_container import DOCKERFILE, environment

ROOT = DOCKERFILE.parents[2]
SCRIPT = Path(__file__).with_name("without_an_engine.sh")
PYTHON = "/usr/bin/python3"  # the image's own `python` is on nobody's path here
LIMIT_SECONDS = 500  # most of it for fetching packages and for compiling
DUTY = """r(duty/alice,0,web-1,41)
r(duty/bob,0,web-1,41)
w(duty/alice,1,web-1,41)
r(duty/alice,0,web-2,42)
r(duty/bob,0,web-2,42)
w(duty/bob,2,web-2,42)
"""

pytestmark = pytest.mark.image


def instruction(name: str) -> str:
    """The first one of that name, in one line."""
    found = re.search(rf"^{name} ((?:.*\\\n)*.*)\n", DOCKERFILE.read_text(), re.MULTILINE)
    assert found
    return found[1].replace("\\\n", " ")


def copied(context: Path) -> None:
    """What the file copies and the engine is sent: without what Dockerfile.dockerignore leaves out."""
    patterns = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split()
    left_out = shutil.ignore_patterns(*(pattern[3:] for pattern in patterns if pattern.startswith("**/")))
    for source, target in re.findall(r"^COPY (?!--from)(\S+) (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        assert f"!{source}" in patterns
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, context / target, ignore=left_out)
        else:
            shutil.copy(ROOT / source, context / target)


def confined() -> list[str]:
    """The command to enter namespaces; the test is skipped where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    for program in ("unshare", "setpriv", "ip", PYTHON):
        if not shutil.which(program):
            pytest.skip(f"there is no {program} here; Debian has it: apt-get install util-linux iproute2 python3")
    command = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run(
        [*command, "unshare", "--net", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    ).returncode:
        pytest.skip("namespaces and mounts are not allowed here")
    return command


def test_the_image_would_build_run_confined_be_healthy_and_find_a_violation(tmp_path: Path) -> None:
    command = confined()
    context, room = tmp_path / "context", tmp_path / "room"
    context.mkdir()
    room.mkdir()
    copied(context)
    variables = {**environment(), "PATH": "/opt/mussurana/bin:/usr/bin:/bin"}
    _, _, healthcheck = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    ran = subprocess.run(
        [*command, "sh", str(SCRIPT), str(context), str(room)],
        env={
            **os.environ,
            "RUN": instruction("RUN").replace("python -m venv", f"{PYTHON} -m venv"),
            "ENVIRONMENT": " ".join(f"{name}={value}" for name, value in variables.items()),
            "HEALTHCHECK": healthcheck,
            "ENTRYPOINT": " ".join(json.loads(instruction("ENTRYPOINT"))),
            "HISTORY": DUTY,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    print(ran.stdout)
    assert ran.returncode == 0
    assert "uid=10001 gid=10001 groups=10001" in ran.stdout
    for line in ("CapEff:\\t0000000000000000", "CapBnd:\\t0000000000000000", "NoNewPrivs:\\t1"):
        assert re.search(line, ran.stdout)
    assert re.search(r"REJECTED  serializable .*write skew", ran.stdout)
    assert ran.stdout.endswith("exit code 0\nnot healthy any more\n")
