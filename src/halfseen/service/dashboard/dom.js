// Functions that create elements and format numbers, times and ages. Text is never interpreted as markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Changes the text of an element only if it differs, so that screen readers and selections are not disturbed.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return value.toExponential(2);
  return plain.format(value);
}

export const count = (value) => whole.format(value);
export const percent = (value) => `${plain.format(Math.round(1000 * value) / 10)} %`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${number(Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${number(Math.round(seconds * 1e4) / 10)} ms`;
  if (seconds < 90) return `${number(Math.round(seconds * 10) / 10)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(seconds) {
  return seconds < 1.5 ? "just now" : `${duration(Math.max(0, Math.round(seconds)))} ago`;
}

export function dateTime(seconds) {
  return new Date(1000 * seconds).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
}

// Fills a table. Each row is a list of strings, and the first string is the heading of the row.
export function fillTable(table, headings, rows) {
  const heading = (text, at) => make("th", { scope: "col", class: at > 0 ? "number" : null }, text);
  const line = (cells) =>
    make("tr", {}, cells.map((cell, at) => (at ? make("td", { class: "number" }, cell) : make("th", { scope: "row" }, cell))));
  const head = make("thead", {}, make("tr", {}, headings.map(heading)));
  const body = make("tbody", {}, rows.map(line));
  const caption = table.querySelector("caption");
  table.replaceChildren(...(caption ? [caption] : []), head, body);
}

// A line that is shown only while there is something to say.
export function makeNote() {
  return make("p", { class: "note", role: "status", hidden: true });
}

export function setNote(element, text) {
  element.hidden = text === null;
  setText(element, text ?? "");
}
