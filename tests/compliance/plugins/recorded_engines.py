"""A pytest plugin for SQLAlchemy's suite: every engine has the plugin.

In the URL it would get lost: the suite makes engines from the URLs of others, and those do not name it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.engine import URL

from mussurana.collector.sqlalchemy_plugin import DRIVERS

instantiate = URL._instantiate_plugins


def instantiate_ours_too(self: URL, arguments: Mapping[str, Any]) -> Any:
    if self.get_driver_name() in DRIVERS:
        arguments = {**arguments, "plugins": [*arguments.get("plugins", ()), "mussurana"]}
    return instantiate(self, arguments)


URL._instantiate_plugins = instantiate_ours_too  # type: ignore[assignment, method-assign]
