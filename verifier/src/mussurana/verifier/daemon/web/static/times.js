// Times on the page: relative ones that go on by themselves, absolute ones beside them or in a tooltip.
//
// The daemon's clock counts, not that of whoever looks: each answer says what time it is there.

import { h } from "./dom.js";
import { ago, datetime, moment } from "./format.js";

let ahead = 0; // milliseconds that the daemon's clock is ahead of this machine's

export function noteDaemonTime(nanoseconds) {
  ahead = nanoseconds / 1e6 - Date.now();
}

export const now = () => Date.now() + ahead; // milliseconds since 1970, as the daemon has it

export const secondsSince = (nanoseconds) => Math.max(0, now() - nanoseconds / 1e6) / 1000;

// "12 s ago", kept current; the tooltip has the time itself.
export function relative(nanoseconds) {
  if (!nanoseconds) return h("span", { class: "muted" }, "never");
  const milliseconds = nanoseconds / 1e6;
  return h("time", { datetime: datetime(milliseconds), title: moment(milliseconds), "data-since": nanoseconds },
    ago(secondsSince(nanoseconds)));
}

// "3 min ago" with "2026-11-17 04:12:18 UTC" behind it.
export function both(nanoseconds) {
  return h("span", { class: "when" }, relative(nanoseconds), " · ",
    h("span", { class: "muted absolute" }, moment(nanoseconds / 1e6)));
}

export function tick() {
  for (const element of document.querySelectorAll("time[data-since]")) {
    const text = ago(secondsSince(Number(element.dataset.since)));
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(tick, 1000);
