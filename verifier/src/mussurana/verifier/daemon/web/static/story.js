// The one place where markup from the daemon becomes part of the page.
//
// The daemon writes it with all text escaped, and the policy of the page lets no script in it run. Still, it is not
// inserted: it is parsed where nothing happens, and built anew from the elements and attributes that a story has. What
// is not in these lists is an error, which is shown, rather than something to pass on.

const HTML = new Set(["a", "code", "details", "div", "figcaption", "figure", "h2", "h3", "li", "ol", "p", "pre", "section", "span",
  "summary", "ul"]);
const SVG = new Set(["circle", "g", "path", "rect", "svg", "text", "title"]);
const ATTRIBUTES = new Set(["aria-label", "aria-live", "class", "cx", "cy", "d", "data-key", "data-source", "data-step",
  "data-target", "data-txn", "height", "id", "r", "role", "rx", "tabindex", "transform", "viewBox", "width", "x", "y"]);
const NAMESPACES = new Map([["http://www.w3.org/1999/xhtml", HTML], ["http://www.w3.org/2000/svg", SVG]]);

// Browsers without trusted types take the text as it is.
const policy = globalThis.trustedTypes?.createPolicy("mussurana-story", { createHTML: (text) => text });

export function built(markup) {
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(markup) : markup, "text/html");
  const fragment = document.createDocumentFragment();
  fragment.append(...[...parsed.head.childNodes, ...parsed.body.childNodes].map(copied));
  return fragment;
}

function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  const known = NAMESPACES.get(node.namespaceURI);
  if (node.nodeType !== Node.ELEMENT_NODE || !known?.has(node.localName)) throw unexpected(node.nodeName);
  const element = document.createElementNS(node.namespaceURI, node.localName);
  for (const { name, value } of node.attributes) {
    if (name === "xmlns") continue;
    if (name === "href" ? !value.startsWith("#") : !ATTRIBUTES.has(name)) throw unexpected(`${node.nodeName} ${name}`);
    element.setAttribute(name, value);
  }
  element.append(...[...node.childNodes].map(copied));
  return element;
}

const unexpected = (what) => new Error(`The story has markup that was not expected: ${what}`);
