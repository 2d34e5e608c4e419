// The cards of a stream's page.

import { draw } from "./charts.js";
import { fillTable, make, number, setText } from "./dom.js";

let cards = 0;
const VERDICTS = { fine: "✓ fine", look: "● look", bad: "▲ bad" };

// A chart with a heading, a description, an optional note, and a table of its numbers.
export class ChartCard {
  constructor(title, about, { wide = false, choice = null } = {}) {
    const id = `card-${(cards += 1)}`;
    this.about = make("p", { class: "about" }, about);
    this.note = make("p", { class: "note", hidden: true });
    this.empty = make("p", { class: "empty", hidden: true });
    this.chart = make("div", { class: "chart", role: "img", "aria-label": `${title}: loading` });
    this.table = make("table", {}, make("caption", {}, title));
    this.details = make(
      "details",
      { hidden: true },
      make("summary", {}, "Table"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: table` }, this.table),
    );
    this.details.addEventListener("toggle", () => this.#fill());
    this.element = make(
      "section",
      { class: wide ? "card wide" : "card", "aria-labelledby": id },
      make("div", { class: "head" }, make("h2", { id }, title), choice),
      this.about,
      this.note,
      this.empty,
      this.chart,
      this.details,
    );
    this.title = title;
    this.rows = null;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw?.());
  }

  // Shows a message instead of the chart.
  showEmpty(text) {
    this.redraw = null;
    setText(this.empty, text);
    [this.empty.hidden, this.chart.hidden, this.details.hidden, this.note.hidden] = [false, true, true, true];
  }

  // `traces` is a function because the colours may change. `rows` is a function because a closed table is not filled.
  async show({ summary, note = null, traces, options, headings, rows }) {
    [this.empty.hidden, this.chart.hidden, this.details.hidden, this.note.hidden] = [true, false, false, note === null];
    if (note !== null) setText(this.note, note);
    this.chart.setAttribute("aria-label", `${this.title}: ${summary}`);
    Object.assign(this, { headings, rows });
    this.#fill();
    this.redraw = () => draw(this.chart, traces(), options);
    await this.redraw();
  }

  #fill() {
    if (this.details.open && this.rows) fillTable(this.table, this.headings, this.rows());
  }
}

// The health report of the agent.
export class HealthCard {
  constructor() {
    this.answer = make("p", { class: "answer", hidden: true });
    this.summary = make("p", { class: "about" }, "Loading…");
    this.notes = make("ul", { class: "notes" });
    this.findings = make("ul", { class: "findings" });
    this.terms = make("dl");
    this.termDetails = make("details", { hidden: true }, make("summary", {}, "Terms"), this.terms);
    this.facts = make("table", {}, make("caption", {}, "Facts"), make("tbody"));
    const details = make("details", {}, make("summary", {}, "Facts"), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Model health: facts" }, this.facts));
    this.element = make("section", { class: "card wide", "aria-labelledby": "health" }, make("div", { class: "head" }, make("h2", { id: "health" }, "Model health")), this.answer, this.summary, this.notes, this.findings, this.termDetails, details);
    this.shown = "";
  }

  show(health) {
    const text = JSON.stringify(health);
    if (text === this.shown) return;
    this.shown = text;
    setText(this.answer, health.answer);
    this.answer.hidden = health.answer === "";
    const later = health.facts.findings ? `; findings ${health.facts.findings}` : "";
    setText(this.summary, health.heading[0].toUpperCase() + health.heading.slice(1) + later + ".");
    this.notes.replaceChildren(...health.notes.map((note) => make("li", {}, note)));
    this.findings.replaceChildren(...health.findings.map(findingItem));
    const terms = Object.entries(health.terms);
    this.terms.replaceChildren(...terms.flatMap(([term, meaning]) => [make("dt", {}, term), make("dd", {}, meaning)]));
    this.termDetails.hidden = terms.length === 0;
    const line = ([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, factText(value)));
    this.facts.querySelector("tbody").replaceChildren(...Object.entries(health.facts).map(line));
  }
}

function findingItem(finding) {
  const verdict = make("span", { class: `verdict ${finding.verdict}` }, VERDICTS[finding.verdict] ?? finding.verdict);
  const expected = finding.expected === "–" ? "" : ` (expected ${finding.expected})`;
  return make("li", {}, verdict, ` ${finding.name}: ${finding.shown}${expected}`, make("p", {}, finding.sentence));
}

function factText(value) {
  if (Array.isArray(value)) return value.map(factText).join(", ") || "none";
  return typeof value === "number" ? number(value) : String(value ?? "–");
}
