// A chart with its heading, what it shows, what to know about it, and its numbers in a table.

import { draw } from "./charts.js";
import { fillTable, make, setText } from "./dom.js";

let cards = 0;

export class Card {
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
      make("summary", {}, "The numbers"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: the numbers` }, this.table),
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

  // What to do where there is nothing to draw yet.
  nothing(text) {
    this.redraw = null;
    setText(this.empty, text);
    [this.empty.hidden, this.chart.hidden, this.details.hidden, this.note.hidden] = [false, true, true, true];
  }

  // `traces` is a function, because colours may change; `rows` too, because a closed table needs none.
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
