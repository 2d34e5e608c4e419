// The list of all streams.

import { getJson } from "./requests.js";
import { ago, count, duration, make, makeNote, number, percent, setNote, setText } from "./dom.js";

const LIMIT = 100;
const HEADINGS = ["Stream", "Agent", "Arms", "Decisions", "Per second", "Rewards", "Last event"];

export function overviewPage() {
  const lead = make("p", { class: "lead" }, "Loading…");
  const degraded = makeNote();
  const body = make("tbody");
  const table = make(
    "table",
    { class: "streams", hidden: true },
    make("thead", {}, make("tr", {}, HEADINGS.map((text, at) => make("th", { scope: "col", class: at > 1 ? "number" : null }, text)))),
    body,
  );
  const next = make("button", { type: "button", hidden: true }, "Next streams");
  const first = make("button", { type: "button", hidden: true }, "First streams");
  const empty = emptyState();
  const rows = new Map();
  let [after, following] = ["", null];
  let before = null;

  async function update(signal) {
    const overview = await getJson(`/v1/overview?limit=${LIMIT}&after=${encodeURIComponent(after)}`, signal);
    following = overview.after;
    const names = overview.streams.map((stream) => stream.name);
    const isEmpty = names.length === 0 && after === "";
    empty.hidden = !isEmpty;
    table.hidden = isEmpty;
    next.hidden = following === null;
    first.hidden = after === "";
    for (const [name, row] of rows) if (!names.includes(name)) rows.delete(name) && row.line.remove();
    overview.streams.forEach((stream, at) => {
      const row = rows.get(stream.name) ?? newRow(stream);
      rows.set(stream.name, row);
      if (body.children[at] !== row.line) body.insertBefore(row.line, body.children[at] ?? null);
      const earlier = before?.streams.find((one) => one.name === stream.name);
      const rate = earlier ? (stream.decisions - earlier.decisions) / (overview.now - before.now) : null;
      setText(row.arms, count(stream.arms));
      setText(row.decisions, count(stream.decisions));
      setText(row.rate, rate === null ? "–" : number(Math.round(10 * rate) / 10));
      setText(row.rewards, stream.decisions ? `${count(stream.rewards)} (${percent(stream.rewards / stream.decisions)})` : "0");
      setText(row.last, stream.retired ? "retired" : ago(overview.now - stream.updated));
    });
    before = overview;
    setNote(degraded, overview.service.degraded);
    const decide = overview.service.latencies.decide;
    const speed = decide?.count ? ` The median latency of a decision is ${duration(decide.p50)}, the 99th percentile ${duration(decide.p99)}.` : "";
    const onPage = following === null && after === "" ? "" : " on this page";
    const total = names.length === 1 ? "1 stream" : `${count(names.length)} streams`;
    setText(lead, isEmpty ? "There are no streams yet." : `${total}${onPage}.${speed}`);
  }

  function showAfter(name) {
    after = name;
    before = null;
    return update();
  }
  next.addEventListener("click", () => showAfter(following).catch(() => {}));
  first.addEventListener("click", () => showAfter("").catch(() => {}));

  return { elements: [make("h1", {}, "Streams"), degraded, lead, empty, table, make("p", { class: "pages" }, first, next)], update };
}

function newRow(stream) {
  const cell = (label) => make("td", { class: "number", "data-label": label });
  const link = make("a", { href: `#/streams/${encodeURIComponent(stream.name)}` }, stream.name);
  const [arms, decisions, rate, rewards, last] = HEADINGS.slice(2).map(cell);
  const agent = make("td", { "data-label": "Agent" }, stream.agent);
  return { line: make("tr", {}, make("th", { scope: "row" }, link), agent, arms, decisions, rate, rewards, last), arms, decisions, rate, rewards, last };
}

function emptyState() {
  const json = "-H 'content-type: application/json'";
  const lines = [
    `curl ${location.origin}/v1/streams ${json} \\`,
    `  -d '{"name": "prices", "observed": 3, "arms": ["low", "middle", "high"]}'`,
    `curl ${location.origin}/v1/streams/prices/decisions ${json} -d '{"observation": [0.3, null, 1.2]}'`,
  ];
  return make("div", { hidden: true }, make("p", {}, "Create a stream and ask for its first decision with these commands. The stream then appears on this page."), make("pre", {}, lines.join("\n")));
}
