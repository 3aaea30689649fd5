"""The Grafana dashboard, as code: python -m deploy.grafana.dashboard > deploy/grafana/dashboards/mussurana.json

A panel is a line or two here and forty lines of JSON there; `make docs` writes them and a test compares the two.
Everything is filtered by the variables `instance` (which daemon) and `level`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

COLUMNS = 24  # of Grafana's grid
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
AT = '{instance=~"$instance"}'
OF_JOB = '{job="mussurana", instance=~"$instance"}'
AT_LEVEL = '{instance=~"$instance", level=~"$level"}'

BLUE, GREEN, ORANGE, RED = "#3274d9", "#56a64b", "#ff780a", "#c4162a"
VERDICT_COLOURS = {"accepted": GREEN, "rejected": RED, "unknown": ORANGE}


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    title: str
    about: str
    queries: list[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    log_scale: bool = False
    colours: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[float | None, str]] = field(default_factory=list)  # from this value on, that colour
    words: dict[str, str] = field(default_factory=dict)  # shown in place of a value


def stat(title: str, about: str, expr: str, unit: str = "short", **options: Any) -> Panel:
    return Panel(title, about, [Query(expr)], unit, kind="stat", width=4, height=4, **options)


def rate(metric: str, by: str, labels: str = AT) -> str:
    return f"sum by ({by}) (rate({metric}{labels}[$__rate_interval]))"


def quantile(share: float, metric: str, labels: str, by: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le{by}) (rate({metric}_bucket{labels}[$__rate_interval])))"


def age(metric: str, labels: str = AT) -> str:
    """Of something that may never have been; then there is no value."""
    return f"time() - ({metric}{labels} > 0)"


ROWS: dict[str, list[Panel]] = {
    "Now": [
        stat(
            "Lag",
            "Age of the oldest transactions without a verdict.",
            f"max(mussurana_verification_lag_current_seconds{AT})",
            "s",
            steps=[(None, GREEN), (10, ORANGE), (60, RED)],
        ),
        stat(
            "Verification",
            "Whether what arrives is verified.",
            f"min(mussurana_verification_running{AT})",
            steps=[(None, RED), (1, GREEN)],
            words={"0": "stopped", "1": "running"},
        ),
        stat(
            "Acknowledging",
            "Whether what arrives is made durable.",
            f"min(mussurana_acknowledging{AT})",
            steps=[(None, RED), (1, GREEN)],
            words={"0": "stopped", "1": "yes"},
        ),
        stat(
            "Last violation",
            "No value: none is stored.",
            f"1000 * max(mussurana_violation_timestamp_seconds{AT_LEVEL} > 0)",
            "dateTimeFromNow",
            steps=[(None, RED)],
        ),
        stat(
            "Collectors",
            "Connected at this moment.",
            f"sum(mussurana_collectors_connected{AT})",
            steps=[(None, RED), (1, GREEN)],
        ),
        stat(
            "Transactions",
            "Verified per second; each level counts for itself.",
            f"sum(rate(mussurana_transactions_total{AT_LEVEL}[$__rate_interval]))",
            "tps",
        ),
    ],
    "Verdicts": [
        Panel(
            "Verification lag",
            "From commit to verdict, and the age of the oldest transactions without one.",
            [
                Query(quantile(0.5, "mussurana_verification_lag_seconds", AT_LEVEL, ", level"), "median, {{level}}"),
                Query(quantile(0.99, "mussurana_verification_lag_seconds", AT_LEVEL, ", level"), "99 %, {{level}}"),
                Query(f"mussurana_verification_lag_current_seconds{AT}", "oldest, {{instance}}"),
            ],
            "s",
        ),
        Panel(
            "Throughput",
            "Transactions per second by the verdict of their round.",
            [Query(rate("mussurana_transactions_total", "level, verdict", AT_LEVEL), "{{verdict}}, {{level}}")],
            "tps",
            stacked=True,
            colours=VERDICT_COLOURS,
        ),
        Panel(
            "Violations found",
            "By anomaly, per interval.",
            [
                Query(
                    f"sum by (level, anomaly) (increase(mussurana_rejections_total{AT_LEVEL}[$__rate_interval])) > 0",
                    "{{anomaly}}, {{level}}",
                ),
                Query(
                    f"increase(mussurana_violations_unexplained_total{AT_LEVEL}[$__rate_interval]) > 0",
                    "set aside without a counterexample, {{level}}",
                ),
            ],
            stacked=True,
        ),
        Panel(
            "Rounds by verdict",
            "Per second.",
            [Query(rate("mussurana_rounds_total", "level, verdict", AT_LEVEL), "{{verdict}}, {{level}}")],
            "ops",
            stacked=True,
            colours=VERDICT_COLOURS,
        ),
        Panel(
            "Round phases",
            "Share of one core that each phase takes. `total` is the whole round and is left out.",
            [
                Query(
                    rate(
                        "mussurana_round_phase_seconds_total",
                        "phase",
                        '{instance=~"$instance", level=~"$level", phase!="total"}',
                    ),
                    "{{phase}}",
                )
            ],
            "percentunit",
            stacked=True,
        ),
        Panel(
            "Round time",
            "How long a round takes.",
            [
                Query(quantile(0.5, "mussurana_round_seconds", AT_LEVEL, ", level"), "median, {{level}}"),
                Query(quantile(0.99, "mussurana_round_seconds", AT_LEVEL, ", level"), "99 %, {{level}}"),
            ],
            "s",
        ),
    ],
    "What is remembered": [
        Panel(
            "Retained transactions",
            "What the next round looks at again. Flat is well; growth means that the epoch does not advance.",
            [Query(f"mussurana_retained_transactions{AT_LEVEL}", "{{level}}")],
        ),
        Panel(
            "Waiting transactions",
            "For the writer of something they read.",
            [
                Query(f"mussurana_waiting_transactions{AT}", "waiting, {{instance}}"),
                Query(f"mussurana_in_doubt_transactions{AT}", "in doubt, {{instance}}"),
            ],
        ),
        Panel(
            "Version table",
            "Keys whose last version is remembered.",
            [Query(f"mussurana_version_table_keys{AT_LEVEL}", "{{level}}")],
        ),
        Panel(
            "Epoch age",
            "Since all sessions last passed an epoch, and since the oldest waiting transaction came.",
            [
                Query(age("mussurana_agreed_epoch_timestamp_seconds", AT_LEVEL), "epoch, {{level}}"),
                Query(age("mussurana_waiting_oldest_timestamp_seconds"), "oldest waiting, {{instance}}"),
            ],
            "s",
        ),
        Panel(
            "Epochs",
            "That all sessions have passed, per second.",
            [Query(f"deriv(mussurana_agreed_epoch{AT_LEVEL}[$__rate_interval])", "{{level}}")],
            "ops",
        ),
        Panel(
            "Sessions",
            "Open ones hold the epoch; the others do not.",
            [
                Query(f"mussurana_sessions_open{AT}", "open, {{instance}}"),
                Query(f"mussurana_sessions_idle{AT}", "idle, closed or given up, {{instance}}"),
            ],
        ),
    ],
    "What is heard": [
        Panel(
            "Collectors",
            "Silent: the stream broke off, and nobody has sent the rest.",
            [
                Query(f"mussurana_collectors_connected{AT}", "connected, {{instance}}"),
                Query(f"mussurana_collectors_silent{AT}", "silent, {{instance}}"),
            ],
            colours={"connected": GREEN, "silent": RED},
        ),
        Panel(
            "Gaps",
            "History that will never be verified, by cause.",
            [Query(f"sum by (cause) (increase(mussurana_gaps_total{AT}[$__rate_interval]))", "{{cause}}")],
            stacked=True,
        ),
        Panel(
            "Not checked",
            "Per second: lost, with a read that could not be checked, and the reads by reason; tags of write ids "
            "that two collectors drew; how often everything was let go; alarms that wait and that were withdrawn.",
            [
                Query(rate("mussurana_lost_transactions_total", "instance"), "lost transactions"),
                Query(rate("mussurana_lost_fragments_total", "instance"), "lost fragments"),
                Query(rate("mussurana_clashing_tags_total", "instance"), "clashing tags"),
                Query(rate("mussurana_clocks_set_back_total", "instance"), "clocks set back"),
                Query(rate("mussurana_clock_leaps_total", "instance"), "times that nobody could be heard"),
                Query(rate("mussurana_begun_anew_total", "instance"), "begun anew"),
                Query(rate("mussurana_unknown_transactions_total", "instance"), "unknown transactions"),
                Query(rate("mussurana_unchecked_reads_total", "reason"), "reads, {{reason}}"),
                Query(rate("mussurana_ignored_claims_total", "instance"), "ignored claims"),
                Query(rate("mussurana_withdrawn_violations_total", "told"), "withdrawn, told: {{told}}"),
                Query(f"sum by (instance) (mussurana_alarms_waiting{AT})", "alarms waiting"),
            ],
            "ops",
        ),
        Panel(
            "Reads left unchecked by claims",
            "The share of reads that rounds did not check, because a collector wrote to their tables unseen or uses "
            "the write ids of another one; and which collectors and tables these are, per second.",
            [
                Query(
                    f"sum(rate(mussurana_claimed_reads_total{AT}[$__rate_interval])) / "
                    f"sum(rate(mussurana_reads_total{AT}[$__rate_interval]))",
                    "share",
                ),
                Query(rate("mussurana_tainted_reads_total", "collector, table"), "{{collector}}: {{table}}"),
            ],
            "short",
        ),
        Panel(
            "Unobserved statements",
            "That collectors could not or not fully see, per second.",
            [Query(rate("mussurana_unobserved_statements_total", "observed"), "{{observed}}")],
            "ops",
            stacked=True,
        ),
        Panel(
            "Share of statements fully seen",
            "Verdicts hold for these.",
            [
                Query(
                    f"sum(rate(mussurana_observed_statements_total{AT}[$__rate_interval])) / "
                    f"(sum(rate(mussurana_observed_statements_total{AT}[$__rate_interval])) + "
                    f"sum(rate(mussurana_unobserved_statements_total{AT}[$__rate_interval])))",
                    "fully seen",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Fragments",
            "Received, received again, and streams that were refused, per second.",
            [
                Query(rate("mussurana_fragments_received_total", "instance"), "received"),
                Query(rate("mussurana_fragments_duplicated_total", "instance"), "again"),
                Query(rate("mussurana_fragments_refused_total", "reason"), "refused: {{reason}}"),
                Query(rate("mussurana_quota_refusals_total", "quota"), "over quota: {{quota}}"),
            ],
            "ops",
            log_scale=True,
        ),
        Panel(
            "Received",
            "Bytes of fragments per second.",
            [Query(rate("mussurana_received_bytes_total", "instance"), "{{instance}}")],
            "Bps",
        ),
        Panel(
            "Fences",
            "That collectors ran, and those that failed, per second.",
            [
                Query(rate("mussurana_fences_issued_total", "instance"), "issued"),
                Query(rate("mussurana_fences_failed_total", "instance"), "failed"),
            ],
            "ops",
            colours={"failed": RED},
        ),
        Panel(
            "Time in fences",
            "What fencing costs the applications: seconds per second, all collectors together.",
            [Query(rate("mussurana_fence_seconds_total", "instance"), "{{instance}}")],
            "percentunit",
        ),
    ],
    "Disk and process": [
        Panel(
            "Sizes on disk",
            "Of what the data directory holds.",
            [
                Query(f"mussurana_log_bytes{AT}", "log"),
                Query(f"mussurana_journal_bytes{AT}", "journal"),
                Query(f"mussurana_checkpoint_bytes{AT}", "checkpoint"),
                Query(f"mussurana_violations_bytes{AT}", "violations"),
            ],
            "bytes",
        ),
        Panel(
            "Log not yet verified",
            "And what is free on the disk.",
            [
                Query(f"mussurana_log_behind_bytes{AT}", "not verified"),
                Query(f"mussurana_disk_free_bytes{AT}", "free on the disk"),
            ],
            "bytes",
            log_scale=True,
        ),
        Panel(
            "Checkpoint age",
            "A restart verifies again what came since.",
            [Query(age("mussurana_checkpoint_timestamp_seconds"), "{{instance}}")],
            "s",
        ),
        Panel(
            "Time to write",
            "99 of 100 are faster.",
            [
                Query(quantile(0.99, "mussurana_log_commit_seconds", AT), "commit of the log"),
                Query(quantile(0.99, "mussurana_checkpoint_seconds", AT), "checkpoint"),
            ],
            "s",
        ),
        Panel(
            "Troubles",
            "Attempts that failed, and steps that found something else when taken again after a start.",
            [
                Query(f"increase(mussurana_log_failures_total{AT}[$__rate_interval])", "log"),
                Query(f"increase(mussurana_log_damages_total{AT}[$__rate_interval])", "log damaged"),
                Query(f"increase(mussurana_journal_failures_total{AT}[$__rate_interval])", "journal"),
                Query(f"increase(mussurana_checkpoint_failures_total{AT}[$__rate_interval])", "checkpoint"),
                Query(f"increase(mussurana_steps_different_total{AT}[$__rate_interval])", "steps different"),
                Query(f"increase(mussurana_round_failures_total{AT}[$__rate_interval])", "rounds, {{level}}"),
                Query(f"increase(mussurana_verification_failures_total{AT}[$__rate_interval])", "verification"),
                Query(f"increase(mussurana_worker_failures_total{AT}[$__rate_interval])", "part, {{worker}}"),
                Query(
                    'increase(mussurana_webhook_deliveries_total{instance=~"$instance", result="failed"}'
                    "[$__rate_interval])",
                    "webhook",
                ),
                Query(f"mussurana_clock_ahead_seconds{AT}", "clock set back, s"),
            ],
            stacked=True,
        ),
        Panel(
            "Memory",
            "Of the daemon, resident.",
            [Query(f"process_resident_memory_bytes{OF_JOB}", "{{instance}}")],
            "bytes",
            width=4,
        ),
        Panel(
            "CPU",
            "Of the daemon; 100 % is one core.",
            [Query(rate("process_cpu_seconds_total", "instance", OF_JOB), "{{instance}}")],
            "percentunit",
            width=4,
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": []})
        panels[-1]["gridPos"] = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        top, left = top + 1, 0
        for panel in row:
            if left + panel.width > COLUMNS:
                top, left = top + panel.height, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            left += panel.width
        top += row[-1].height
    return {
        "uid": "mussurana",
        "title": "Mussurana",
        "description": "Whether a database gives the isolation it promises, and how well that is known.",
        "tags": ["mussurana"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "links": [],
        "templating": {"list": _variables()},
        "annotations": {"list": [_violations()]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "mappings": [], "color": {"mode": "palette-classic"}}
    defaults["thresholds"] = {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in panel.steps or [(None, BLUE)]],
    }
    if panel.words:
        words = {value: {"text": word, "index": at} for at, (value, word) in enumerate(panel.words.items())}
        defaults["mappings"] = [{"type": "value", "options": words}]
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
        }
    else:
        defaults["min"] = 0
        defaults["custom"] = _drawn(panel)
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        if panel.log_scale:
            del defaults["min"]  # a logarithm has no zero
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
                "editorMode": "code",
            }
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": defaults,
            "overrides": [
                {
                    "matcher": {"id": "byRegexp", "options": f"/^{word}/"},
                    "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
                }
                for word, colour in panel.colours.items()
            ],
        },
        "options": options,
    }


def _drawn(panel: Panel) -> dict[str, Any]:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if panel.stacked else 5,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if panel.log_scale else {"type": "linear"},
    }


def _variables() -> list[dict[str, Any]]:
    def values(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,  # whenever the time range changes
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
            "sort": 1,
            "hide": 0,
            "regex": "",
            "options": [],
            "skipUrlSync": False,
        }

    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
        "hide": 0,
        "regex": "",
        "options": [],
        "multi": False,
        "includeAll": False,
        "skipUrlSync": False,
    }
    return [
        source,
        values("instance", "Daemon", "label_values(mussurana_build_info, instance)"),
        values("level", "Level", 'label_values(mussurana_rounds_total{instance=~"$instance"}, level)'),
    ]


def _violations() -> dict[str, Any]:
    return {
        "name": "Violations",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": RED,
        "expr": f"1000 * (mussurana_violation_timestamp_seconds{AT_LEVEL} > 0)",
        "useValueForTime": "on",
        "titleFormat": "{{anomaly}}",
        "textFormat": "{{level}}",
        "step": "60s",
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
