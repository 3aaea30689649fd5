// The last hour as charts that share one axis: a line across all of them tells what was at one moment.
//
// Also with the keyboard: the whole is a slider over time, whose text is what the line tells.

import { s, say } from "./dom.js";
import { clock, duration, number, plural, rate } from "./format.js";

const LEFT = 58;
const RIGHT = 10;
const TITLE = 30; // room for a title above each chart
const GAP = 10;
const SMOOTH = 3; // intervals: rounds do not end in step with them
const AXIS = 24;
const SPANS = [[600, 120, "The last 10 minutes"], [1800, 300, "The last 30 minutes"], [3600, 600, "The last hour"]];
const IDLE = "Point at a moment, or move through time with the arrow keys.";

const PANELS = [
  { name: "lag", title: "Verification lag", height: 124, least: 1, label: duration,
    lines: [["lag_longest_seconds", "longest", true], ["lag_typical_seconds", "typical", false]] },
  { name: "throughput", title: "Transactions verified per second", height: 66, least: 10, label: compact,
    lines: [["rate", "", true]] },
  { name: "retained", title: "Retained transactions", height: 50, least: 10, label: compact,
    lines: [["retained", "", true]] },
];
const STRIP = { title: "Rounds", height: 30, share: { accepted: 0.35, unknown: 0.65, rejected: 1 } };
const HEIGHT = PANELS.reduce((sum, panel) => sum + TITLE + panel.height + GAP, 0) + TITLE + STRIP.height + AXIS;

export class Charts {
  constructor(place, readout) {
    this.place = place;
    this.readout = readout;
    this.rows = [];
    this.nowSeconds = Date.now() / 1000;
    this.span(this.nowSeconds - 3600);
    this.chosen = null; // start of an interval
    this.pen = document.createElement("canvas").getContext("2d"); // knows how wide words are
    this.svg = s("svg", { class: "chart", height: HEIGHT, role: "presentation" });
    this.pointer = s("path", { class: "pointer", d: "" });
    place.replaceChildren(this.svg);
    for (const [name, value] of Object.entries({
      tabindex: "0", role: "slider", "aria-label": "The last hour", "aria-valuemin": "0", "aria-valuemax": "3600",
      "aria-valuenow": "3600",
    })) place.setAttribute(name, value);
    new ResizeObserver(() => this.draw()).observe(place);
    place.addEventListener("pointermove", (event) => this.choose(this.timeAt(event.clientX)));
    place.addEventListener("pointerleave", () => { if (document.activeElement !== place) this.choose(null); });
    place.addEventListener("blur", () => this.choose(null));
    place.addEventListener("keydown", (event) => this.key(event));
    say(readout, IDLE);
  }

  update(rows, intervalSeconds, nowSeconds) {
    this.rows = rows.map((row, n) => {
      const near = rows.slice(Math.max(0, n - SMOOTH + 1), n + 1)
        .filter((each) => row.start_seconds - each.start_seconds < SMOOTH * intervalSeconds);
      const verified = near.reduce((sum, each) => sum + each.transactions, 0);
      return { ...row, rate: verified / (near.length * intervalSeconds) };
    });
    this.hasRounds = rows.some((row) => row.accepted || row.rejected || row.unknown);
    this.intervalSeconds = intervalSeconds;
    this.nowSeconds = nowSeconds;
    this.span(rows.length ? rows[0].start_seconds : nowSeconds);
    this.draw();
  }

  // As much of the hour as there is: a daemon that has just started would show mostly nothing.
  span(first) {
    [this.spanSeconds, this.stepSeconds, this.title] = SPANS.find(([seconds]) => first > this.nowSeconds - seconds) ?? SPANS.at(-1);
  }

  x(seconds) {
    return LEFT + ((seconds - this.nowSeconds + this.spanSeconds) / this.spanSeconds) * (this.width - LEFT - RIGHT);
  }

  timeAt(clientX) {
    const inside = clientX - this.svg.getBoundingClientRect().left - LEFT;
    return this.nowSeconds - this.spanSeconds + (inside / (this.width - LEFT - RIGHT)) * this.spanSeconds;
  }

  draw() {
    const { paddingLeft, paddingRight } = getComputedStyle(this.place);
    this.width = Math.max(240, this.place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
    this.svg.setAttribute("width", this.width);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const parts = [];
    let y = 0;
    for (const panel of PANELS) {
      parts.push(...this.panel(panel, y + TITLE));
      y += TITLE + panel.height + GAP;
    }
    parts.push(...this.strip(y + TITLE));
    parts.push(...this.axis(y + TITLE + STRIP.height));
    parts.unshift(this.rejections(y + TITLE + STRIP.height));
    if (this.hasRounds === false) {
      parts.push(s("text", { class: "nothing", x: (this.width + LEFT) / 2, y: TITLE + PANELS[0].height / 2 + 4 },
        "No round yet"));
    }
    this.svg.replaceChildren(...parts, this.pointer);
    this.point();
  }

  panel(panel, top) {
    const values = this.rows.flatMap((row) => panel.lines.map(([name]) => row[name] ?? 0));
    const most = niceMaximum(Math.max(panel.least, ...values));
    const bottom = top + panel.height;
    const y = (value) => bottom - (value / most) * panel.height;
    const parts = [s("text", { class: "title", x: 0, y: top - 13 }, panel.title)];
    for (const value of [most, most / 2, 0]) {
      parts.push(s("path", { class: value ? "grid" : "grid base", d: `M${LEFT} ${y(value) + 0.5}H${this.width - RIGHT}` }));
      parts.push(s("text", { class: "tick end", x: LEFT - 8, y: y(value) + 4 }, value ? panel.label(value) : "0"));
    }
    panel.lines.forEach(([name, , filled], n) => {
      const runs = this.runs(name).map((run) => run.map((row) => [this.x(row.start_seconds), y(row[name])]));
      const line = runs.map((run) => `M${run.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L")}${run.length === 1 ? "h2" : ""}`);
      if (filled) {
        const area = runs.map((run) => `M${run[0][0].toFixed(1)} ${bottom}L${run.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join("L")}L${run.at(-1)[0].toFixed(1)} ${bottom}z`);
        parts.push(s("path", { class: `area ${panel.name}`, d: area.join("") }));
      }
      parts.push(s("path", { class: `line ${panel.name} line-${n}`, d: line.join("") }));
    });
    const named = panel.lines.filter(([, label]) => label);
    let right = this.width - RIGHT;
    for (const [n, [, label]] of [...named.entries()].reverse()) {
      right -= this.words(parts, label, right, top) + 26;
      parts.push(s("path", { class: `line ${panel.name} line-${n}`, d: `M${right} ${top - 17}h20` }));
      right -= 16;
    }
    return parts;
  }

  strip(top) {
    const bottom = top + STRIP.height;
    const wide = Math.max(1, (this.width - LEFT - RIGHT) * this.intervalSeconds / this.spanSeconds - 0.3);
    const parts = [
      s("text", { class: "title", x: 0, y: top - 13 }, STRIP.title),
      s("path", { class: "grid base", d: `M${LEFT} ${bottom + 0.5}H${this.width - RIGHT}` }),
    ];
    let right = this.width - RIGHT;
    for (const verdict of ["rejected", "unknown", "accepted"]) {
      const height = STRIP.height * STRIP.share[verdict];
      const across = verdict === "accepted" ? wide : Math.max(wide, 3);
      const bars = this.rows.filter((row) => row[verdict] > 0).map((row) =>
        `M${(this.x(row.start_seconds) - (across - wide) / 2).toFixed(1)} ${bottom}v${-height}h${across.toFixed(1)}v${height}z`);
      parts.splice(2, 0, s("path", { class: `bar ${verdict}`, d: bars.join("") }));
      const sample = 11 * STRIP.share[verdict];
      right -= this.words(parts, verdict, right, top) + 12;
      parts.push(s("path", { class: `bar ${verdict}`, d: `M${right} ${top - 13}v${-sample}h6v${sample}z` }));
      right -= 16;
    }
    return parts;
  }

  // A word of a legend that ends at `right`; returns how wide it is.
  words(parts, text, right, top) {
    this.pen.font = `12px ${getComputedStyle(this.place).fontFamily}`;
    parts.push(s("text", { class: "tick end", x: right, y: top - 13 }, text));
    return this.pen.measureText(text).width;
  }

  // Faint lines through all charts where something was rejected, to see what else happened then.
  rejections(bottom) {
    const lines = this.rows.filter((row) => row.rejected > 0).map((row) => `M${this.middle(row).toFixed(1)} ${TITLE}V${bottom}`);
    return s("path", { class: "rejection", d: lines.join("") });
  }

  axis(top) {
    const parts = [];
    const step = this.width < 480 ? 2 * this.stepSeconds : this.stepSeconds;
    const first = Math.ceil((this.nowSeconds - this.spanSeconds) / step) * step;
    for (let time = first; time <= this.nowSeconds; time += step) {
      const x = this.x(time);
      if (x < LEFT + 4 || x > this.width - RIGHT - 44) continue;
      parts.push(s("path", { class: "grid base", d: `M${x.toFixed(1)} ${top}v4` }));
      parts.push(s("text", { class: "tick middle", x, y: top + 17 }, clock(time * 1000).slice(0, 5)));
    }
    parts.push(s("text", { class: "tick", x: 0, y: top + 17 }, "UTC"));
    parts.push(s("text", { class: "tick end", x: this.width - RIGHT, y: top + 17 }, "now"));
    return parts;
  }

  // Rows that follow each other and have a value; a pause is a gap in the line.
  runs(name) {
    const runs = [];
    let last = -Infinity;
    for (const row of this.rows) {
      if (row[name] === null || row[name] === undefined) continue;
      if (row.start_seconds - last > 2 * this.intervalSeconds) runs.push([]);
      runs.at(-1).push(row);
      last = row.start_seconds;
    }
    return runs;
  }

  middle(row) {
    return this.x(row.start_seconds + this.intervalSeconds / 2);
  }

  choose(seconds) {
    if (seconds === null || this.rows.length === 0) {
      this.chosen = null;
    } else {
      const nearest = this.rows.reduce((best, row) =>
        Math.abs(row.start_seconds - seconds) < Math.abs(best.start_seconds - seconds) ? row : best);
      this.chosen = nearest.start_seconds;
    }
    this.point();
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.choose(null);
    if (!(event.key in steps) || this.rows.length === 0) return;
    event.preventDefault();
    const last = this.rows.length - 1;
    const found = this.rows.findIndex((row) => row.start_seconds === this.chosen);
    const place = found < 0 ? last : Math.min(last, Math.max(0, found + steps[event.key]));
    this.choose(this.rows[place].start_seconds);
  }

  point() {
    const row = this.rows.find((each) => each.start_seconds === this.chosen);
    this.pointer.setAttribute("d", row ? `M${this.middle(row).toFixed(1)} ${TITLE - 4}V${HEIGHT - AXIS}` : "");
    const text = row ? told(row) : this.rows.length ? IDLE : "";
    say(this.readout, text);
    this.readout.classList.toggle("idle", !row);
    this.place.setAttribute("aria-valuetext", text);
    this.place.setAttribute("aria-valuenow", row ? String(Math.round(row.start_seconds - this.nowSeconds + 3600)) : "3600");
  }
}

function told(row) {
  const parts = [`${clock(row.start_seconds * 1000)} UTC`];
  if (row.lag_longest_seconds !== null) parts.push(`lag ${duration(row.lag_longest_seconds)} at most`);
  if (row.lag_typical_seconds !== null) parts.push(`typically ${duration(row.lag_typical_seconds)}`);
  parts.push(`${rate(row.rate)} transactions/s`);
  if (row.retained !== null) parts.push(`${number(row.retained)} retained`);
  const rounds = ["rejected", "unknown", "accepted"].filter((verdict) => row[verdict]).map((verdict) => `${row[verdict]} ${verdict}`);
  parts.push(rounds.length ? `rounds: ${rounds.join(", ")}` : plural(0, "round"));
  return parts.join(" · ");
}

function compact(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  return value >= 1e4 ? `${Number((value / 1e3).toPrecision(3))} k` : number(value);
}

// The smallest of 1, 2, 4, 10, 20, 40, ... that is not less: halves of these are round too.
function niceMaximum(value) {
  const magnitude = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((digit) => digit * magnitude).find((nice) => nice >= value * 0.999);
}
