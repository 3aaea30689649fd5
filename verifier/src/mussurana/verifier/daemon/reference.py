"""docs/configuration.md, made from the options themselves: python -m mussurana.verifier.daemon.reference"""

from __future__ import annotations

from mussurana.verifier.daemon.config import options, tables


def reference() -> str:
    """docs/configuration.md."""
    lines = [
        "# Configuration of the daemon",
        "",
        "Made by `make docs` from `verifier/src/mussurana/verifier/daemon/config.py`; a test compares the two.",
        "",
        "`mussurana serve --config FILE` reads a TOML file. Every option can also be set by an environment variable",
        "and by a flag: `window_bytes` in the table `[ingest]` is `MUSSURANA_INGEST_WINDOW_BYTES` and",
        "`--ingest-window-bytes`. Flags win over variables, and variables win over the file. Units are in the names.",
        "`mussurana serve --check-config` says what is wrong, option by option, and starts nothing.",
        "",
        "SIGHUP reads `log_level`, certificates and tokens again; everything else takes a restart.",
    ]
    for table in ("", *(name for name, _ in tables())):
        lines += ["", f"## `[{table}]`" if table else "## At the top of the file", ""]
        lines += ["| option | default | |", "|---|---|---|"]
        for each in options():
            if each.table == table:
                lines.append(f"| `{each.name}` | {_shown(each.default)} | {each.about} |")
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    if default is None or default == "":
        return "none"
    if isinstance(default, tuple):
        return f"`[{', '.join(repr(item) for item in default)}]`".replace("'", '"')
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, int | float) else f'`"{default}"`'


if __name__ == "__main__":
    print(reference(), end="")
