// The overview: asks for what the daemon knows every other second and puts it where it belongs.

import { ask, Refused } from "./ask.js";
import { Charts } from "./charts.js";
import { follow } from "./connection.js";
import { find, h, render, s, say, empty, table } from "./dom.js";
import { age, ago, clock, duration, durationParts, moment, number, percent, plural, rate, size } from "./format.js";
import { headline } from "./headline.js";
import { Hour } from "./hour.js";
import { icon } from "./icons.js";
import { both, now, relative, secondsSince } from "./times.js";

const hour = new Hour();
const charts = new Charts(find("charts"), find("readout"));
let filter = "";
let older = []; // violations beyond those in the overview, once somebody asked for them
let latest = null;

const followed = follow(load, lost);

for (const button of document.querySelectorAll(".filter button")) {
  button.addEventListener("click", () => {
    filter = button.dataset.verdict;
    for (const each of document.querySelectorAll(".filter button")) each.setAttribute("aria-pressed", String(each === button));
    followed();
  });
}

async function load() {
  const [overview, lastHour, filtered] = await Promise.all([
    ask("overview"),
    ask(`hour?since_seconds=${hour.since}`),
    filter ? ask(`rounds?limit=8&verdict=${encodeURIComponent(filter)}`) : null,
  ]);
  const nowSeconds = now() / 1000;
  hour.merge(lastHour, nowSeconds);
  latest = overview;
  charts.update(hour.rows, hour.intervalSeconds, nowSeconds);
  say(find("hour-title"), charts.title);
  showHero(headline(overview, secondsSince));
  showLevels(overview);
  showTiles(overview, nowSeconds);
  showViolations(overview.violations);
  showCollectors(overview.collectors);
  showUnobserved(overview.statements);
  showGaps(overview);
  showRounds(filtered ? filtered.rounds : overview.rounds);
  showFoot(overview.status);
}

function lost(error, answered) {
  const refused = error instanceof Refused;
  const since = answered === null ? "" : ` What is shown is from ${moment(answered)}, ${ago((Date.now() - answered) / 1000)}.`;
  showHero({
    kind: refused ? "trouble" : "lost",
    title: refused ? "The daemon does not show this" : "No connection to the daemon",
    text: (refused ? error.message : "Trying again.") + since,
  });
}

function showHero({ kind, title, text, violation }) {
  find("hero").dataset.kind = kind;
  render(find("hero-mark"), kind, () => icon(kind));
  say(find("headline"), title);
  render(find("subline"), [text, violation], () => (violation === undefined ? text
    : h("a", { href: `violations/${encodeURIComponent(violation)}`, "data-focus": "newest" }, text)));
  document.title = `${{ rejected: "✕ ", trouble: "! ", lost: "… " }[kind] ?? ""}${title} · Mussurana`;
}

function showLevels({ status }) {
  render(find("levels"), status.level, () => status.level.map((level) => {
    const last = level.last_round;
    const about = last ? `round ${number(last.number)} · epoch ${number(level.epoch)}` : "no round yet";
    return h("li", {}, icon(last ? last.verdict : "waiting"), h("span", {},
      h("code", {}, level.level), h("span", { class: "muted" }, `${last ? `last ${last.verdict}, ` : ""}${about}`)));
  }));
}

function tile(name, value, unit, aside, warn = "") {
  const place = document.querySelector(`[data-tile="${name}"]`);
  const shown = place.querySelector(".value");
  render(shown, [value, unit, warn], () => [value, unit ? h("span", { class: "unit" }, ` ${unit}`) : null, warn ? icon(warn) : null].filter(Boolean));
  say(place.querySelector(".aside"), aside);
  place.dataset.warn = warn;
}

function showTiles({ status, collectors, statements, gaps }, nowSeconds) {
  const minute = hour.last(60, nowSeconds);
  const lags = [...minute, ...hour.rows.slice(-2)].map((row) => row.lag_longest_seconds ?? 0);
  const longest = Math.max(status.lag_seconds, ...lags);
  tile("lag", ...durationParts(status.lag_seconds), `at most ${duration(longest)} in the last minute`,
    status.lag_seconds > 30 ? "trouble" : "");
  const covered = minute.length * hour.intervalSeconds;
  const verified = minute.reduce((sum, row) => sum + row.transactions, 0);
  tile("throughput", rate(covered ? verified / covered : 0), "/s", `${number(hour.sum("transactions"))} transactions, last hour`);
  const [accepted, rejected, unknown] = ["accepted", "rejected", "unknown"].map((verdict) => hour.sum(verdict));
  tile("rounds", number(accepted + rejected + unknown), "", `${number(rejected)} rejected, ${number(unknown)} unknown`,
    rejected ? "rejected" : unknown ? "unknown" : "");
  const retained = status.level.reduce((sum, level) => sum + level.retained, 0);
  tile("retained", number(retained), "txns", `${number(status.waiting)} waiting, ${number(status.in_doubt)} in doubt`);
  tile("collectors", number(collectors.connected), "connected",
    collectors.silent ? `${number(collectors.silent)} of them silent` : `${number(collectors.known)} seen in all`,
    collectors.silent || (collectors.known && !collectors.connected) ? "trouble" : "");
  const all = statements.fully_seen + statements.missed;
  tile("unobserved", all ? percent(statements.missed / all) : "–", all ? "%" : "",
    all ? `${number(statements.missed)} of ${plural(all, "statement")}` : "no statement reported",
    statements.shapes.some((shape) => shape.observed === "unobserved_write") ? "trouble" : "");
  const count = Object.values(gaps.counts).reduce((sum, each) => sum + each, 0);
  tile("gaps", number(count), "", `${plural(status.lost_txns, "transaction")} lost`, count || status.lost_txns ? "trouble" : "");
}

function showViolations(violations) {
  const known = new Set(violations.latest.map((each) => each.id));
  const all = [...violations.latest, ...older.filter((each) => !known.has(each.id))];
  say(find("violations-count"), violations.stored ? `${number(violations.stored)} kept` : "");
  render(find("violations-body"), [all, violations.stored], () => {
    if (!all.length) return empty("None found", "A violation stays here, with its explanation, when its round is long forgotten.");
    const list = h("ol", { class: "violations" }, ...all.map(violationItem));
    if (all.length >= violations.stored) return list;
    const more = h("button", { type: "button", class: "plain more", "data-focus": "more" }, "Show older ones");
    more.addEventListener("click", async () => {
      const answer = await ask(`violations?limit=100&before=${encodeURIComponent(all.at(-1).id)}`);
      older = [...older, ...answer.violations];
      showViolations(latest.violations);
    });
    return [list, more];
  });
}

function violationItem(each) {
  const title = each.adya && each.adya !== each.anomaly ? `${each.anomaly} (${each.adya})` : each.anomaly;
  return h("li", {}, icon(each.state === "told" ? "rejected" : each.state === "waiting" ? "waiting" : "unknown"), h("div", {},
    h("a", { href: `violations/${encodeURIComponent(each.id)}`, "data-focus": each.id }, title.slice(0, 1).toUpperCase() + title.slice(1)),
    h("p", { class: "violation-summary" }, each.summary),
    each.state === "told" ? null : h("p", { class: "violation-state" }, each.state === "waiting"
      ? "Waits for collectors that may still take it back." : `Withdrawn: ${each.withdrawn}.`),
    h("p", { class: "violation-where" }, h("code", {}, each.level), both(each.found_ns))));
}

function showCollectors(collectors) {
  const oldest = now() * 1e6 - collectors.silent_seconds * 1e9;
  const rank = { silent: 0, live: 1, disconnected: 2 };
  const shown = collectors.shown
    .map((each) => ({ ...each, state: !each.connected ? "disconnected" : each.last_seen_ns < oldest ? "silent" : "live" }))
    .sort((one, other) => rank[one.state] - rank[other.state]);
  const hidden = collectors.known - shown.length;
  say(find("collectors-count"), hidden > 0 ? `${number(hidden)} more not shown` : "");
  render(find("collectors-body"), shown, () => {
    if (!shown.length) return empty("None has been seen", "Collectors connect from application servers and send what they record.");
    return table([["Collector", ""], ["State", ""], ["Last seen", ""], ["Fragments", "number minor"], ["Version", "minor"]],
      shown.map((each) => [
        h("span", { class: "stacked" },
          h("span", { class: "name", title: each.id }, each.name || each.id.slice(0, 12)),
          h("span", { class: "name muted" }, each.database)),
        h("span", { class: `state ${each.state}` }, each.state),
        relative(each.last_seen_ns),
        number(each.durable_sequence),
        each.version,
      ]));
  });
}

const MISSED = new Map([["partial", "seen in part"], ["unobserved_read", "read unseen"], ["unobserved_write", "wrote unseen"]]);

function showUnobserved(statements) {
  say(find("unobserved-count"), statements.further_shapes ? `${number(statements.further_shapes)} more shapes` : "");
  render(find("unobserved-body"), statements, () => {
    if (!statements.shapes.length) {
      return statements.fully_seen
        ? empty("All seen", `${number(statements.fully_seen)} statements, each of them fully.`)
        : empty("Nothing reported yet", "Collectors tell which statements they could not record, by shape.");
    }
    const most = statements.shapes[0].statements;
    return table([["Shape", ""], ["Table", ""], ["What is missing", ""], ["Statements", "number"]],
      statements.shapes.map((shape) => [
        h("span", { class: "name" }, shape.shape),
        h("span", { class: "name" }, shape.table || "–"),
        h("span", { class: `missed ${shape.observed}` }, MISSED.get(shape.observed) ?? shape.observed),
        h("span", { class: "with-bar" }, bar(shape.statements / most), number(shape.statements)),
      ]));
  });
}

function bar(share) {
  return s("svg", { class: "share", width: 48, height: 8, "aria-hidden": "true" },
    s("rect", { class: "share-all", width: 48, height: 8, rx: 2 }),
    s("rect", { class: "share-part", width: Math.max(2, 48 * share).toFixed(1), height: 8, rx: 2 }));
}

const UNCHECKED = new Map([
  ["absent", "the row was absent, and who removed it cannot be told"],
  ["lost", "what was read is lost in a gap, or was written in a violation"],
  ["tainted", "a collector wrote to the table unseen"],
  ["contested", "two collectors use the same write ids"],
  ["colliding", "two rows have the same key, or somebody says so"],
]);

function showGaps({ gaps, status, collectors }) {
  const names = new Map(collectors.shown.map((each) => [each.id, each.name]));
  const unchecked = Object.entries(status.unchecked_reads).filter(([, count]) => count).sort((one, other) => other[1] - one[1]);
  say(find("gaps-count"), "gaps since the daemon started, reads in all");
  render(find("gaps-body"), [gaps, unchecked], () => {
    if (!gaps.latest.length && !unchecked.length) {
      return empty("None", "Everything that collectors recorded has arrived, and every read could be checked.");
    }
    const parts = [];
    if (gaps.latest.length) {
      parts.push(table([["When", ""], ["Collector", ""], ["Cause", "minor"], ["Reason", "wide"], ["Missing", "number"]], gaps.latest.map((gap) => [
        relative(gap.received_ns),
        h("span", { class: "name", title: gap.collector }, names.get(gap.collector) || gap.collector.slice(0, 12)),
        gap.cause,
        gap.reason,
        gap.fragments ? plural(gap.fragments, "fragment") : gap.txns ? plural(gap.txns, "transaction") : "part of one",
      ])));
    }
    if (unchecked.length) {
      parts.push(table([["Reads that could not be checked, because", ""], ["Reads", "number"]],
        unchecked.map(([reason, count]) => [UNCHECKED.get(reason) ?? reason, number(count)])));
    }
    return parts;
  });
}

function showRounds(rounds) {
  render(find("rounds-body"), [filter, rounds], () => {
    if (!rounds.length) return filter ? empty(`No ${filter} round`, "Among the latest two thousand.") : empty("No round yet", "");
    return table([["Finished", ""], ["Level", "minor"], ["Round", "number"], ["Verdict", ""], ["New", "number minor"], ["Retained", "number minor spare"],
      ["Took", "number minor spare"], ["Lag, median", "number minor spare"], ["Lag, longest", "number"], ["About", "wide"]],
    rounds.map((round) => [
      h("time", { title: moment(round.finished_ns / 1e6) }, clock(round.finished_ns / 1e6)),
      h("code", {}, round.level),
      number(round.number),
      h("span", { class: `chip ${round.verdict}` }, icon(round.verdict), round.verdict),
      number(round.txn_count),
      number(round.retained),
      duration(round.seconds),
      round.lag_median_seconds === null ? "–" : duration(round.lag_median_seconds),
      round.lag_longest_seconds === null ? "–" : duration(round.lag_longest_seconds),
      aboutRound(round),
    ]));
  });
}

// "unchecked 12: web-3 @7 wrote to seats unseen", for what collectors claim.
function uncheckedIn(round) {
  return round.unchecked.map(({ reason, collector, table, reads }) =>
    `unchecked ${number(reads)}: ${collector} ${claimOf(reason, table || "some table")}`).join("; ");
}

function claimOf(reason, table) {
  if (reason === "contested") return "uses write ids of another collector";
  return reason === "colliding" ? `has another name for rows of ${table}` : `wrote to ${table} unseen`;
}

function aboutRound(round) {
  const unchecked = uncheckedIn(round);
  if (!round.violations.length) return [round.reason, unchecked].filter(Boolean).join("; ");
  const links = round.violations.flatMap((id, n) => [n ? " " : "", h("a", { href: `violations/${encodeURIComponent(id)}`, "data-focus": `round-${id}` }, id)]);
  const further = round.further_violations ? ` and ${plural(round.further_violations, "transaction")} set aside` : "";
  return h("span", {}, ...links, further, unchecked ? `; ${unchecked}` : "");
}

function showFoot(status) {
  say(find("foot"), `mussurana ${status.version} · ${status.state} · up ${age(secondsSince(status.started_ns))} · `
    + `${plural(status.sessions_open, "open session")} · ${plural(status.alarms_waiting, "alarm")} waiting, ${number(status.alarm_wait_seconds)} s at most · log ${size(status.log_bytes)}, ${size(status.log_behind_bytes)} not verified · `
    + `checkpoint ${status.checkpoint_ns ? ago(secondsSince(status.checkpoint_ns)) : "not made yet"}`);
}
