// What the agent has to say about itself and its model.

import { make, number, setText } from "./dom.js";

const WORDS = { fine: "✓ fine", look: "● look", bad: "▲ bad" };

export class HealthCard {
  constructor() {
    this.summary = make("p", { class: "about" }, "Loading…");
    this.notes = make("ul", { class: "notes" });
    this.findings = make("ul", { class: "findings" });
    this.facts = make("table", {}, make("caption", {}, "Facts"), make("tbody"));
    const details = make("details", {}, make("summary", {}, "The facts"), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Model health: the facts" }, this.facts));
    this.element = make("section", { class: "card wide", "aria-labelledby": "health" }, make("div", { class: "head" }, make("h2", { id: "health" }, "Model health")), this.summary, this.notes, this.findings, details);
    this.said = "";
  }

  show(found) {
    const said = JSON.stringify(found);
    if (said === this.said) return;
    this.said = said;
    const later = found.facts.findings ? `; findings ${found.facts.findings}` : "";
    setText(this.summary, found.heading[0].toUpperCase() + found.heading.slice(1) + later + ".");
    this.notes.replaceChildren(...found.notes.map((note) => make("li", {}, note)));
    this.findings.replaceChildren(...found.findings.map(finding));
    const line = ([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, text(value)));
    this.facts.querySelector("tbody").replaceChildren(...Object.entries(found.facts).map(line));
  }
}

function finding(one) {
  const verdict = make("span", { class: `verdict ${one.verdict}` }, WORDS[one.verdict] ?? one.verdict);
  const expected = one.expected === "–" ? "" : ` (expected ${one.expected})`;
  return make("li", {}, verdict, ` ${one.name}: ${one.shown}${expected}`, make("p", {}, one.sentence));
}

function text(value) {
  if (Array.isArray(value)) return value.map(text).join(", ") || "none";
  return typeof value === "number" ? number(value) : String(value ?? "–");
}
