// A violation's page: what went wrong, as a picture and in sentences, and ways to take it along.

import { ask, askFile, Refused } from "./ask.js";
import { follow } from "./connection.js";
import { find, h, render, say } from "./dom.js";
import { number } from "./format.js";
import { tell } from "./report.js";
import { built } from "./story.js";
import { both } from "./times.js";

const id = decodeURIComponent(location.pathname.split("/").at(-1));
const path = (form) => `violations/${encodeURIComponent(id)}.${form}`;

follow(load, lost, false);

async function load() {
  const violation = await ask(path("story"));
  document.title = `${violation.headline} · ${violation.level} · Mussurana`;
  say(find("headline"), violation.headline);
  say(find("summary"), violation.summary);
  find("verdict").hidden = find("actions").hidden = false;
  render(find("facts"), [violation.id, violation.state], () => [
    fact("Level", h("code", {}, violation.level)),
    fact("Found", both(violation.found_ns)),
    fact("Round", number(violation.round)),
    fact("Epoch", number(violation.epoch)),
    fact("State", violation.state === "withdrawn" ? `withdrawn: ${violation.withdrawn}` : violation.state),
    fact("Violation", h("code", {}, violation.id)),
  ]);
  render(find("story"), violation.id, () => built(violation.story));
  for (const section of document.querySelectorAll("section.case")) tell(section);
}

const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function lost(error) {
  const isGone = error instanceof Refused && error.status === 404;
  find("actions").hidden = find("story").childElementCount === 0;
  if (find("story").childElementCount) return;
  say(find("headline"), isGone ? "There is no such violation" : error instanceof Refused ? "The daemon does not show this" : "No connection to the daemon");
  say(find("summary"), isGone ? `None with the id ${id} is stored: it may be older than what is kept, or of another daemon.`
    : error instanceof Refused ? error.message : error instanceof TypeError || error.name === "TimeoutError" ? "Trying again." : error.message);
}

let forgetDone = 0;

function done(text) {
  say(find("done"), text);
  clearTimeout(forgetDone);
  forgetDone = setTimeout(() => say(find("done"), ""), 4000);
}

// The address without a place in the page, so that it is the same for everybody.
find("copy").addEventListener("click", async () => {
  const link = new URL(location.pathname, location.href).href;
  try {
    await navigator.clipboard.writeText(link);
    done("Copied");
  } catch {
    done(link); // no permission, or not a secure context: then at least it can be selected
  }
});

for (const button of document.querySelectorAll("[data-form]")) {
  button.addEventListener("click", async () => {
    try {
      const file = await askFile(path(button.dataset.form));
      const address = URL.createObjectURL(file.content);
      h("a", { href: address, download: file.name }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      done(`Saved ${file.name}`);
    } catch (error) {
      done(error instanceof Refused ? error.message : "No connection to the daemon");
    }
  });
}
