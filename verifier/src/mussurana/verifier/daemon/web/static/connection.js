// Asks again and again, and says how that goes: live, disconnected, or that a token is needed.

import { find, h, say } from "./dom.js";
import { Refused, hasToken, setToken } from "./ask.js";
import { ago } from "./format.js";

const PAUSE_MS = 2000;
const PAUSE_MS_MAX = 15000;

// `load` asks and shows; `lost` is told why there is nothing new: an error, and when the last answer came (or null).
export function follow(load, lost, repeat = true) {
  let timer = 0;
  let running = false;
  let failures = 0;
  let answered = null; // when, on this machine's clock
  let trouble = null;

  async function once() {
    if (running) return;
    running = true;
    clearTimeout(timer);
    try {
      await load();
      failures = 0;
      answered = Date.now();
      trouble = null;
      document.body.classList.remove("loading", "stale", "locked");
      find("sign-out").hidden = !hasToken();
      closeLogin();
    } catch (error) {
      failures += 1;
      trouble = error;
      document.body.classList.remove("loading");
      document.body.classList.toggle("locked", isLocked(error));
      document.body.classList.toggle("stale", !isLocked(error));
      if (isLocked(error)) openLogin(error.message, once);
      else lost(error, answered);
    } finally {
      running = false;
    }
    tell();
    if (isLocked(trouble) || document.hidden || (!repeat && !trouble)) return;
    if (trouble instanceof Refused && trouble.status === 404) return;
    timer = setTimeout(once, Math.min(PAUSE_MS * 2 ** Math.max(0, failures - 1), PAUSE_MS_MAX));
  }

  function tell() {
    const link = find("link");
    const isAnswer = trouble instanceof Refused && trouble.status === 404; // that there is none is an answer
    const state = trouble === null || isAnswer ? "live" : isLocked(trouble) ? "locked" : trouble instanceof Refused ? "refused" : "lost";
    link.dataset.state = state;
    const since = answered === null ? "" : ` · last answer ${ago((Date.now() - answered) / 1000)}`;
    say(link, {
      live: repeat ? "Live" : "Connected",
      locked: "Signed out",
      refused: `Refused${since}`,
      lost: `Disconnected${since}`,
    }[state]);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && (repeat || trouble) && !isLocked(trouble)) once();
  });
  find("sign-out").addEventListener("click", () => {
    setToken("");
    find("sign-out").hidden = true;
    location.reload();
  });
  setInterval(() => { if (trouble !== null) tell(); }, 1000);
  once();
  return once;
}

const isLocked = (error) => error instanceof Refused && error.status === 401;

// The form stands in place of the content, which would be empty or of somebody who signed out.

function openLogin(message, retry) {
  const wrong = hasToken() ? message : "";
  if (find("login")) {
    say(find("login-error"), wrong);
    find("token").select();
    find("token").setAttribute("aria-invalid", String(wrong !== ""));
    return;
  }
  const field = h("input", {
    id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false",
    "aria-describedby": "login-about login-error",
  });
  const form = h("form", { id: "login", class: "login" },
    h("h1", {}, "Sign in"),
    h("p", { id: "login-about", class: "muted" },
      "The daemon asks for a token for queries. It stays in this tab and is forgotten with it."),
    h("label", { for: "token" }, "Token"),
    field,
    h("p", { id: "login-error", class: "error", role: "alert" }, wrong),
    h("button", { type: "submit", class: "primary" }, "Sign in"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    retry();
  });
  find("content").hidden = true;
  find("content").before(form);
  field.focus();
}

function closeLogin() {
  const form = find("login");
  if (!form) return;
  form.remove();
  find("content").hidden = false;
  find("content").focus({ preventScroll: true });
}
