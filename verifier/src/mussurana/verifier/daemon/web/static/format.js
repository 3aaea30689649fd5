// Numbers with units, and times. Everything is in UTC, as in logs, reports and tickets.

export const number = (value) => Math.round(value).toLocaleString("en-US");

export const plural = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

// Three digits that mean something: ["0.40", "ms"], ["13.2", "ms"], ["1.25", "s"], ["92", "s"], ["12", "min"].
export function durationParts(seconds) {
  if (seconds === 0) return ["0", "s"];
  if (seconds < 0.001) return [(seconds * 1000).toFixed(2), "ms"];
  if (seconds < 0.9995) return [String(Number((seconds * 1000).toPrecision(3))), "ms"];
  if (seconds < 100) return [String(Number(seconds.toPrecision(3))), "s"];
  return ageParts(seconds);
}

export const duration = (seconds) => durationParts(seconds).join(" ");

// Whole numbers: ["12", "s"], ["4", "min"], ["7", "h"], ["3", "days"].
export function ageParts(seconds) {
  if (seconds < 120) return [seconds.toFixed(0), "s"];
  if (seconds < 7200) return [(seconds / 60).toFixed(0), "min"];
  if (seconds < 172800) return [(seconds / 3600).toFixed(0), "h"];
  return [(seconds / 86400).toFixed(0), "days"];
}

export const age = (seconds) => ageParts(Math.max(0, seconds)).join(" ");

export function ago(seconds) {
  return seconds < 1.5 ? "just now" : `${age(seconds)} ago`;
}

export function size(bytes) {
  for (const [unit, divisor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= divisor) return `${(bytes / divisor).toFixed(1)} ${unit}`;
  }
  return `${bytes} bytes`;
}

// Of 1: "0", "< 0.01", "0.43", "12".
export function percent(share) {
  const value = share * 100;
  if (value === 0) return "0";
  return value < 0.01 ? "< 0.01" : String(Number(value.toPrecision(2)));
}

// A rate: "1,240", "12.5", "0.4".
export const rate = (value) => (value >= 100 || value === 0 ? number(value) : String(Number(value.toPrecision(2))));

const iso = (milliseconds) => new Date(milliseconds).toISOString();

export const clock = (milliseconds) => iso(milliseconds).slice(11, 19);

export const moment = (milliseconds) => `${iso(milliseconds).slice(0, 10)} ${clock(milliseconds)} UTC`;

export const datetime = iso;
