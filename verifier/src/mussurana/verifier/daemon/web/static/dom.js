// Elements from plain values. Text is only ever text: nothing here, or anywhere else but story.js, parses markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (id) => document.getElementById(id);

// h("a", { href: "..." }, "text", child, ...): null and undefined children are left out.
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Sets text only where it is another, so that a selection or a screen reader is not disturbed for nothing.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Replaces the children unless they are the same as before; `key` is what they were made from.
const shown = new WeakMap();

export function render(element, key, make) {
  const text = JSON.stringify(key);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const focused = document.activeElement;
  const focusKey = focused && element.contains(focused) && focused !== element ? focused.dataset.focus : undefined;
  element.replaceChildren(...[make()].flat());
  if (focusKey !== undefined) {
    [...element.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focusKey)?.focus();
  }
}

export function table(titles, rows) {
  const head = h("tr", {}, ...titles.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)));
  const body = rows.map((cells) =>
    h("tr", { class: cells.kind }, ...cells.map((cell, n) => h("td", { class: titles[n][1] }, cell))));
  return h("table", {}, h("thead", {}, head), h("tbody", {}, ...body));
}

export function empty(title, text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", {}, text) : null);
}
