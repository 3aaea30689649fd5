"""Dockerfile and compose file: as far as that can be told without running a container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mussurana.verifier.commands.serve import flags_from
from mussurana.verifier.daemon.config import options
from mussurana.verifier.daemon.configured import ConfigError, load
from tests.daemon.conftest import running
from tests.daemon.watching import until

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = DEPLOY / "container" / "Dockerfile"
OURS_AND_OTHERS = ["mussurana", "postgres", "prometheus", "alertmanager", "grafana"]


def environment() -> dict[str, str]:
    """What the image sets."""
    found = re.search(r"^ENV ((?:.*\\\n)*.*)\n", DOCKERFILE.read_text(), re.MULTILINE)
    assert found
    return dict(word.split("=", 1) for word in shlex.split(found[1].replace("\\\n", " ")))


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return content


def test_options_in_the_image_exist() -> None:
    known = {option.variable for option in options()}
    assert {name for name in environment() if name.startswith("MUSSURANA_")} <= known


def test_the_image_wants_to_be_told_about_tls_before_it_listens() -> None:
    with pytest.raises(ConfigError, match=r"tls\.certificate_file"):
        load(None, environment(), {})


def test_the_daemon_in_the_compose_file_has_options_that_make_sense() -> None:
    command, *arguments = compose()["services"]["mussurana"]["command"]
    assert command == "serve"
    filled = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", argument) for argument in arguments]
    config = load(None, environment(), flags_from(filled))
    assert config.verify.levels == ("serializable",)
    assert config.http.listen.endswith(":7702")
    assert config.http.insecure, "else the web page would show nothing"


def test_the_image_is_not_root_and_reads_no_index() -> None:
    text = DOCKERFILE.read_text()
    assert "USER 10001:10001" in text
    assert "HEALTHCHECK" in text
    assert "--index-url" not in text
    assert not re.search(r"https?://(?!127\.0\.0\.1)", text)
    constraints = (DEPLOY.parent / "constraints.txt").read_text()
    assert all(re.fullmatch(r"[\w.-]+==[\w.!]+", line) for line in constraints.splitlines()[1:])


def test_the_health_check_tells_a_daemon_that_takes_fragments_from_one_that_does_not(tmp_path: Path) -> None:
    found = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert found
    python, flag, program = json.loads(found[1])
    assert (python, flag) == ("python", "-c")
    with running(tmp_path / "data") as daemon:

        def check() -> int:
            here = program.replace(":7702", f":{daemon.http_port}")
            return subprocess.run([sys.executable, flag, here], capture_output=True, timeout=30).returncode

        assert check() == 0
        daemon.service.committer._disk_reserve_bytes = 1 << 60
        until(lambda: daemon.service.committer.trouble)
        assert check() != 0


def test_everything_that_is_copied_is_let_through() -> None:
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split()
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE):
        for source in sources.split():
            assert f"!{source}" in ignored
            assert (DEPLOY.parent / source).exists()


def test_the_compose_file_has_all_services_on_loopback_and_confined() -> None:
    services = compose()["services"]
    assert list(services) == OURS_AND_OTHERS
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("read_only") or name == "postgres"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose()["volumes"]
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"] == [{"targets": ["mussurana:7702"]}]


def test_passwords_are_asked_for_and_not_in_the_file() -> None:
    for service in compose()["services"].values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or re.fullmatch(r"\$\{\w+:\?.*\}", value)


def test_docker_compose_accepts_the_file() -> None:
    if not (found := shutil.which("docker-compose")):
        pytest.skip("there is no docker-compose here; Debian has it: apt-get install docker-compose")
    secrets = {"POSTGRES_PASSWORD": "a", "GRAFANA_PASSWORD": "b"}
    command = [found, "--file", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    checked = subprocess.run(command, env={**os.environ, **secrets}, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_hadolint_has_nothing_to_say() -> None:
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if not found:
        pytest.skip("there is no hadolint here; `make manifests` installs one")
    linted = subprocess.run([found, str(DOCKERFILE)], capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout
