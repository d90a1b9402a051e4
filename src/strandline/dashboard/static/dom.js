// Create elements from values. Text becomes text nodes only, so that a key or a dead letter is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A section with a heading, a one-line description, and content.
export function panel(title, about, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), about ? h("p", { class: "about" }, about) : null, ...children);
}

// columns: [{ title, cell: row => node or text, number: bool, wide: bool }]
export function table(columns, rows, { empty = "Nothing yet.", label, onrow, key } = {}) {
  if (!rows.length) return h("p", { class: "hint" }, empty);
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title)));
  const lines = rows.map((row) =>
    h("tr", { "data-key": key ? key(row) : undefined, tabindex: onrow ? "0" : undefined, class: onrow ? "opens" : undefined,
              click: onrow ? () => onrow(row) : undefined,
              keydown: onrow ? (event) => { if (event.key === "Enter" && event.target === event.currentTarget) onrow(row); } : undefined },
      columns.map((column) => h("td", { class: kind(column), "data-title": column.title }, grouped(column.cell(row))))));
  return h("div", { class: "scrolls" }, h("table", { "aria-label": label, class: columns.length > 5 || columns.some((column) => column.wide) ? "cards" : undefined }, h("thead", {}, head), h("tbody", {}, lines)));
}

// Keep the parts of a cell grouped where a row is shown as a card.
function grouped(content) {
  return Array.isArray(content) ? h("span", {}, content) : content;
}

function kind(column) {
  return [column.number ? "number" : "", column.wide ? "wide" : "", column.kind ?? ""].join(" ").trim() || undefined;
}

const SIGNS = { ok: "●", warn: "▲", bad: "■", off: "○", unknown: "○" };

// A verdict is shown by colour, sign and word, so that it does not depend on colour vision.
export function badge(verdict, word) {
  return h("span", { class: `badge ${verdict}` }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[verdict] ?? "○"), " ", word);
}
