// The one sentence at the top: is everything fine? Only what was verified counts as fine; silence does not.

import { ago, duration, plural, size } from "./format.js";

const BEHIND_SECONDS = 30;
const HOUR_SECONDS = 3600;

// { kind, title, text, violation }: the kind is accepted, rejected, unknown, trouble or waiting; a violation to go to.
export function headline(overview, secondsSince) {
  const { status, violations, collectors } = overview;
  const last = status.level.map((level) => level.last_round).filter(Boolean);
  const levels = status.level.map((level) => level.level).join(", ");
  const told = violations.latest.filter((each) => each.state === "told");
  const recent = told.filter((each) => secondsSince(each.found_ns) < HOUR_SECONDS);
  const older = violations.stored - recent.length;
  const newest = told[0];

  if (status.trouble.length || status.state === "stopped") {
    const title = status.state === "stopped" ? "Verification has stopped" : "Verification is held up";
    const text = status.trouble.map((each) => sentence(each.replace(/^verification has stopped: /, ""))).join(" ");
    return { kind: "trouble", title, text: text || "The daemon is ending." };
  }
  if (recent.length) {
    const many = recent.length === told.length && told.length === violations.latest.length && violations.stored > recent.length;
    const title = `${many ? "More than " : ""}${plural(recent.length, "violation")} in the last hour`;
    const text = `The latest: ${newest.anomaly}, against ${newest.level}, found ${ago(secondsSince(newest.found_ns))}.`;
    return { kind: "rejected", title, text, violation: newest.id };
  }
  if (status.state === "starting") {
    return { kind: "waiting", title: "Starting", text: "The verifier is being prepared; fragments are taken in meanwhile." };
  }
  if (status.state === "catching up") {
    return { kind: "waiting", title: "Catching up", text: `${size(status.log_behind_bytes)} of the log have no verdict yet.` };
  }
  if (last.length === 0) {
    const text = collectors.connected
      ? `${plural(collectors.connected, "collector")} connected; the first round follows the first transactions.`
      : "No collector is connected yet.";
    return { kind: "waiting", title: "Nothing verified yet", text };
  }
  if (status.lag_seconds > BEHIND_SECONDS) {
    return { kind: "unknown", title: `Verification is ${duration(status.lag_seconds)} behind`, text: "What is newer has no verdict yet." };
  }
  const open = last.filter((round) => round.verdict === "unknown");
  if (open.length) {
    const title = `No answer for round ${open[0].number.toLocaleString("en-US")}`;
    const reason = open[0].reason || "The last round could not be decided.";
    return { kind: "unknown", title, text: status.level.length > 1 ? `${open[0].level}: ${reason}` : reason };
  }
  const kept = older ? ` ${plural(older, "older violation")} kept below.` : "";
  const finished = Math.max(...last.map((round) => round.finished_ns));
  if (collectors.connected === 0) {
    const text = `No collector is connected. The last round was ${ago(secondsSince(finished))}.${kept}`;
    return { kind: "waiting", title: "Nothing new to verify", text };
  }
  return { kind: "accepted", title: "No violation in the last hour", text: `What was observed fits ${levels}.${kept}` };
}

const sentence = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
