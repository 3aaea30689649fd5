// Questions to the daemon. The token is kept for this tab only, and travels in a header, never in an address.

import { noteDaemonTime } from "./times.js";

const ROOT = new URL("..", import.meta.url); // also behind a proxy that serves the page under some path
const TOKEN = "mussurana-token";
const TIMEOUT_MS = 8000;

// The daemon answered, but not with what was asked for.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
  remembered.clear();
}

const remembered = new Map(); // path -> the last answer and its tag

// JSON. An answer that is as before is the same object as before.
export async function ask(path) {
  const known = remembered.get(path);
  const response = await request(path, known ? { "If-None-Match": known.tag } : {});
  if (response.status === 304 && known) return known.answer;
  const answer = await response.json();
  const tag = response.headers.get("ETag");
  if (tag && !path.includes("?")) remembered.set(path, { tag, answer });
  return answer;
}

export async function askFile(path) {
  const response = await request(path, {});
  const named = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "");
  return { name: named ? named[1] : "mussurana", content: await response.blob() };
}

async function request(path, headers) {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(new URL(`api/${path}`, ROOT), {
    headers: token ? { ...headers, Authorization: `Bearer ${token}` } : headers,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const time = response.headers.get("Mussurana-Time-Ns");
  if (time) noteDaemonTime(Number(time));
  if (response.ok || response.status === 304) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(response.status, said.error ?? `The daemon answered ${response.status}.`);
}
