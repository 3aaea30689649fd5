// Signs for verdicts and states. Each has its own shape, so that colour is never the only difference.

import { s } from "./dom.js";

const SHAPES = {
  accepted: ["M12 2a10 10 0 1 0 0 20a10 10 0 1 0 0-20z", "M7.500 12.500l3 3 6-7"],
  rejected: ["M8 2h8l6 6v8l-6 6h-8l-6-6v-8z", "M8.500 8.500l7 7m0-7l-7 7"],
  unknown: ["M12 1.500l10.500 10.500-10.500 10.500-10.500-10.500z", "M9.500 10a2.500 2.500 0 1 1 3.500 2.300c-.8.4-1 .9-1 1.700m0 2.700v.1"],
  trouble: ["M12 2.500l10.500 18.500h-21z", "M12 9v5.500m0 2.700v.1"],
  waiting: ["M12 2a10 10 0 1 0 0 20a10 10 0 1 0 0-20z", "M12 6.500v6l3.500 2"],
  lost: ["M12 2a10 10 0 1 0 0 20a10 10 0 1 0 0-20z", "M7 12h2m2 0h2m2 0h2"],
};

export function icon(name) {
  const [outline, sign] = SHAPES[name] ?? SHAPES.waiting;
  return s("svg", { class: `icon ${name}`, viewBox: "0 0 24 24", "aria-hidden": "true" },
    s("path", { class: "icon-outline", d: outline }), s("path", { class: "icon-sign", d: sign }));
}
