// One stream, live.

import { ask } from "./requests.js";
import { ChartCard, HealthCard } from "./cards.js";
import { banded, bars, lined, settledRange, stacked, theme } from "./charts.js";
import { ago, count, duration, make, moment, number, percent, setText } from "./dom.js";

const POINTS = 300;
const MOST_SAMPLES = 300;

export function streamPage(name) {
  const path = `/v1/streams/${encodeURIComponent(name)}`;
  const lead = make("p", { class: "lead" }, "Loading…");
  const tiles = new Tiles(["Decisions shown", "Mean reward", "Uniform policy", "Waiting", "Decide, p99"]);
  const select = make("select", { id: "coordinate" });
  const choice = make("div", { class: "choice", hidden: true }, make("label", { for: "coordinate" }, "Coordinate"), select);
  const rewards = new ChartCard("Rewards", "Mean of all rewards shown, with its 95 % interval, against what choosing at random would have earned by the propensities.", { wide: true });
  const arms = new ChartCard("Share of each arm", "How often each arm was chosen, decision by decision.");
  const context = new ChartCard("Estimated context", "The last decisions as the model in force now sees them from the observations, with its 95 % band; dots are what was seen.", { choice });
  const waiting = new ChartCard("Waiting for rewards", "Decisions shown that have no reward yet, by age.");
  const latency = new ChartCard("Latency", "Time from a decision asked for to its answer on disk: all streams of the worker that answers, since this page was opened.");
  const health = new HealthCard();
  const cards = make("div", { class: "cards" }, [rewards, arms, context, waiting, latency, health].map((card) => card.element));
  const samples = [];
  let wanted = 0;

  async function update(signal) {
    const found = await ask(`${path}/series?points=${POINTS}&coordinate=${wanted}`, signal).catch((error) => {
      if (error.status === 404) showNothing();
      throw error;
    });
    [tiles.element.hidden, cards.hidden] = [false, false];
    showLead(lead, found.shown, found.now);
    tiles.show(found);
    sample(samples, found);
    await Promise.all([
      showRewards(rewards, found.rewards, path),
      showArms(arms, found.arms),
      showContext(context, choice, select, found.context),
      showWaiting(waiting, found.waiting, found.shown, found.delays),
      showLatency(latency, samples),
    ]);
  }
  // It may still be made: the page goes on asking.
  function showNothing() {
    [tiles.element.hidden, cards.hidden] = [true, true];
    setText(lead, "There is no stream of this name.");
  }
  select.addEventListener("change", () => {
    wanted = Number(select.value);
    update().catch(() => {}); // the next turn says what is wrong
  });

  return {
    elements: [
      make("p", {}, make("a", { href: "#/" }, "All streams")),
      make("h1", {}, name),
      lead,
      tiles.element,
      cards,
    ],
    update,
    updateRarely: async (signal) => health.show(await ask(`${path}/health`, signal)),
  };
}

class Tiles {
  constructor(titles) {
    this.values = titles.map(() => [make("span"), make("small")]);
    this.element = make("dl", { class: "tiles" }, titles.map((title, at) => make("div", {}, make("dd", {}, ...this.values[at]), make("dt", {}, title))));
  }

  show({ shown, rewards, waiting, service }) {
    const decide = service.latencies.decide;
    const texts = [
      [count(shown.decisions), shown.all ? "all there are" : "the last ones"],
      interval(rewards.mean),
      rewards.uniform.told || !rewards.round.length ? interval(rewards.uniform.snips) : ["–", "propensities cannot tell"],
      [count(waiting.count), waiting.oldest === null ? "none" : `oldest ${duration(waiting.oldest)}`],
      decide?.count ? [duration(decide.p99), `half within ${duration(decide.p50)}`] : ["–", "none asked yet"],
    ];
    texts.forEach(([value, small], at) => {
      setText(this.values[at][0], value);
      setText(this.values[at][1], small);
    });
  }
}

function interval(line) {
  const [value, low, high] = [line.value.at(-1), line.low.at(-1), line.high.at(-1)];
  if (value === undefined || value === null) return ["–", "no rewards yet"];
  return [number(value), low === null || low === undefined ? "" : `${number(low)} to ${number(high)}`];
}

function showLead(lead, shown, now) {
  if (!shown.decisions) return setText(lead, "No decisions yet.");
  const span = `Decisions ${count(shown.first)} to ${count(shown.last)}, the first of them ${ago(now - shown.since)}`;
  setText(lead, shown.all ? `${span}: all there are.` : `${span}: the last ones; older ones are in the journal.`);
}

function showRewards(card, found, path) {
  if (!found.round.length) {
    return card.nothing(`No rewards yet. Send what a decision brought: POST ${path}/rewards {"decision": "…", "value": 1.5}`);
  }
  const { uniform } = found;
  const main = uniform.told ? uniform.snips : null;
  const last = (line) => `${number(line.value.at(-1))} (${number(line.low.at(-1))} to ${number(line.high.at(-1))})`;
  return card.show({
    summary: `mean ${last(found.mean)}, uniform policy ${main ? last(main) : "cannot be told from the propensities"}, after ${count(found.count.at(-1))} rewards`,
    note: uniform.note,
    traces: () => {
      const look = theme();
      return [
        ...(main ? banded(found.round, main, "uniform policy", look.two) : [lined(found.round, uniform.dr.value, "uniform policy, as the agent expects", look.two, "dash")]),
        lined(found.round, found.recent, `last ${count(found.span)}`, look.three, "dot"),
        ...banded(found.round, found.mean, "this stream", look.one),
      ];
    },
    options: { x: "decision", y: "reward", range: settledRange([found.mean.low, found.mean.high, ...(main ? [main.low, main.high] : [uniform.dr.value])]) },
    headings: ["Decision", "Time", "Rewards", "Mean", "Low", "High", `Last ${found.span}`, "Uniform (self-normalised)", "Low", "High", "Uniform (IPS)", "Uniform (doubly robust)"],
    rows: () =>
      found.round.map((round, at) => [
        count(round),
        moment(found.time[at]),
        count(found.count[at]),
        ...[found.mean.value, found.mean.low, found.mean.high, found.recent, uniform.snips.value, uniform.snips.low, uniform.snips.high, uniform.ips.value, uniform.dr.value].map((values) => number(values[at])),
      ]),
  });
}

function showArms(card, found) {
  if (!found.round.length) return card.nothing("No decisions yet.");
  const most = found.total.indexOf(Math.max(...found.total));
  // One block cannot be an area: it is drawn as a flat one.
  const x = found.round.length === 1 ? [Math.min(1, found.round[0]), found.round[0]] : found.round;
  const patterns = ["", "/", "", "\\", "", "x", "", "-", "", "|", "", "+", "."];
  return card.show({
    summary: `${found.arms[most]} is chosen most, ${percent(found.total[most])} of the decisions shown`,
    traces: () => {
      const { palette } = theme();
      return found.arms.map((arm, at) => stacked(x, x.map((_, i) => found.share[at][Math.min(i, found.share[at].length - 1)]), arm, palette[at % palette.length], patterns[at % patterns.length]));
    },
    options: { x: "decision", y: "share", range: [0, 1], percent: true },
    headings: ["Up to decision", ...found.arms],
    rows: () => [...found.round.map((round, at) => [count(round), ...found.share.map((share) => percent(share[at]))]), ["all shown", ...found.total.map(percent)]],
  });
}

function showContext(card, choice, select, found) {
  choice.hidden = found.why !== null;
  if (found.why !== null) return card.nothing(found.why);
  const names = found.coordinates;
  if (select.options.length !== names.length || names.some((name, at) => select.options[at].text !== name)) {
    select.replaceChildren(...names.map((name, at) => make("option", { value: at }, name)));
  }
  if (document.activeElement !== select) select.value = String(found.coordinate);
  const name = names[found.coordinate];
  const { line } = found;
  return card.show({
    summary: `${name} is ${number(line.value.at(-1))}, between ${number(line.low.at(-1))} and ${number(line.high.at(-1))}`,
    traces: () => {
      const look = theme();
      const seen = { x: found.round, y: found.seen, name: "seen", type: "scatter", mode: "markers", marker: { color: look.two, size: 3, opacity: 0.7 } };
      return [...banded(found.round, line, name, look.one), ...(found.seen.some((value) => value !== null) ? [seen] : [])];
    },
    options: { x: "decision", y: name },
    headings: ["Decision", name, "Low", "High", "Seen"],
    rows: () => found.round.map((round, at) => [count(round), number(line.value[at]), number(line.low[at]), number(line.high[at]), number(found.seen[at])]),
  });
}

function showWaiting(card, found, shown, delays) {
  if (!shown.decisions) return card.nothing("No decisions yet.");
  const took = delays.p50.length ? ` Rewards come after ${duration(delays.p50.at(-1))}; nine of ten within ${duration(delays.p90.at(-1))}.` : "";
  setText(card.about, `Decisions shown that have no reward yet, by age.${took}`);
  if (!found.count) return card.nothing("None: every decision shown has its reward, or its wait is over.");
  return card.show({
    summary: `${count(found.count)} wait, the oldest for ${duration(found.oldest)}`,
    note: took ? null : "No reward has come for any decision shown.",
    traces: () => [bars(found.ages, found.counts, theme().one)],
    options: { x: "age", y: "decisions", legend: false, categories: true },
    headings: ["Age or decision", "How many, or age and arm"],
    rows: () => [...found.ages.map((age, at) => [age, count(found.counts[at])]), ...found.decisions.map((one) => [one.id, `${duration(one.age)}, ${one.arm}`])],
  });
}

function sample(samples, { now, service }) {
  const { decide, reward } = service.latencies;
  if (!decide?.count && !reward?.count) return;
  samples.push({ now, decide, reward });
  if (samples.length > MOST_SAMPLES) samples.shift();
}

function showLatency(card, samples) {
  if (!samples.length) return card.nothing("Nothing was asked of this worker since it was started.");
  const last = samples.at(-1);
  const x = samples.map((one) => Math.round(one.now - last.now));
  const of = (what, quantile) => samples.map((one) => (one[what]?.count ? 1000 * one[what][quantile] : null));
  return card.show({
    summary: `half of the decisions within ${duration(last.decide?.p50)}, 99 of 100 within ${duration(last.decide?.p99)}`,
    traces: () => {
      const look = theme();
      return [
        lined(x, of("decide", "p99"), "decide, p99", look.two),
        lined(x, of("decide", "p50"), "decide, p50", look.one),
        lined(x, of("reward", "p99"), "reward, p99", look.three, "dot"),
      ];
    },
    options: { x: "seconds from now", y: "milliseconds", log: true },
    headings: ["Seconds from now", "Decide p50", "Decide p90", "Decide p99", "Reward p50", "Reward p99"],
    rows: () => samples.map((one, at) => [String(x[at]), ...["p50", "p90", "p99"].map((q) => duration(one.decide?.[q])), ...["p50", "p99"].map((q) => duration(one.reward?.[q]))]).reverse(),
  });
}
