"""Adoption as an Alembic revision: applied, taken back, and left alone by autogenerate."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from textwrap import dedent

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from mussurana.collector.__main__ import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """An application with one table, made by its first revision."""
    monkeypatch.chdir(tmp_path)
    config = Config("alembic.ini")
    command.init(config, "migrations")
    config.set_main_option("script_location", "migrations")
    config.set_main_option("sqlalchemy.url", "sqlite:///app.db")
    env = Path("migrations/env.py")
    hook = "from mussurana.collector.alembic_revision import include_object\n"
    models = dedent("""
        import sqlalchemy
        target_metadata = sqlalchemy.MetaData()
        sqlalchemy.Table("users", target_metadata, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
    """)
    text = env.read_text().replace("target_metadata = None", models)
    text = text.replace(
        "target_metadata=target_metadata", "target_metadata=target_metadata, include_object=include_object"
    )
    env.write_text(hook + text)
    command.revision(config, "first", autogenerate=True)
    command.upgrade(config, "head")
    return config


def columns() -> list[str]:
    return [name for (name,) in sqlite3.connect("app.db").execute("SELECT name FROM pragma_table_info('users')")]


def test_a_revision_adopts_and_its_downgrade_takes_back(project: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", "sqlite:///app.db", "--alembic", "migrations", "--tables", "users"]) == 0
    assert "-- written: " in capsys.readouterr().out
    assert columns() == ["id"], "only the revision was written"
    command.upgrade(project, "head")
    assert columns() == ["id", "mussurana_wid", "mussurana_prev_wid"]
    command.downgrade(project, "-1")
    assert columns() == ["id"]


def test_autogenerate_leaves_our_columns_alone(project: Config) -> None:
    assert main(["adopt", "sqlite:///app.db"]) == 0
    command.check(project)  # raises if it finds anything to do


def test_nothing_to_do_writes_no_revision(project: Config) -> None:
    assert main(["adopt", "sqlite:///app.db"]) == 0
    before = ScriptDirectory("migrations").get_heads()
    assert main(["adopt", "sqlite:///app.db", "--alembic", "migrations"]) == 0
    assert ScriptDirectory("migrations").get_heads() == before


def test_the_table_of_alembic_itself_is_left_out(project: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", "sqlite:///app.db", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "--   alembic_version: Alembic changes its key, without the collector" in shown
    assert 'ALTER TABLE "alembic_version"' not in shown


def test_several_heads_are_refused(project: Config, capsys: pytest.CaptureFixture[str]) -> None:
    command.revision(project, "left", head="head")
    command.revision(project, "right", head="base", splice=True)
    assert main(["adopt", "sqlite:///app.db", "--alembic", "migrations"]) == 3
    assert "merge them first" in capsys.readouterr().err
