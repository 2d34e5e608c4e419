// The page of one stream.

import { getJson } from "./requests.js";
import { ChartCard, HealthCard } from "./cards.js";
import { areaTrace, bandTraces, barTrace, lineTrace, rangeWithoutStart, theme } from "./charts.js";
import { ago, count, dateTime, duration, make, makeNote, number, percent, setNote, setText } from "./dom.js";

const POINTS = 300;
const MAX_SAMPLES = 300;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid"]; // line styles of the arms in a forecast

export function streamPage(name) {
  const path = `/v1/streams/${encodeURIComponent(name)}`;
  const lead = make("p", { class: "lead" }, "Loading…");
  const degraded = makeNote();
  const tiles = new Tiles(["Decisions shown", "Mean reward", "Uniform policy", "Waiting for rewards", "Latency (p99)"]);
  const select = make("select", { id: "coordinate" });
  const choice = make("div", { class: "choice", hidden: true }, make("label", { for: "coordinate" }, "Coordinate"), select);
  const rewards = new ChartCard("Rewards", "Mean of all rewards so far, compared with the estimated mean reward of choosing arms uniformly at random. Bands are 95 % intervals.", { wide: true });
  const arms = new ChartCard("Share of each arm", "How often each arm was chosen.");
  const context = new ChartCard("Estimated context", "The context at the most recent decisions, as the current model estimates it from the observations. The band is a 95 % interval, the dots are the observations.", { choice });
  const ahead = new ChartCard("Forecast of rewards", "Expected rewards of the arms in the next rounds. The bands are 90 % intervals, without the noise of a single reward.");
  const best = new ChartCard("Best arm ahead", "The probability that each arm has the highest expected reward in the next rounds.");
  const contextAhead = new ChartCard("Forecast of the context", "The coordinate chosen above in the next rounds, with a 90 % interval.");
  const waiting = new ChartCard("Waiting for rewards", "Decisions in these charts that have no reward yet, by age.");
  const latency = new ChartCard("Latency", "Time from a request to its commit, for all streams of the worker that answers this page, since the page was opened.");
  const health = new HealthCard();
  const cards = make("div", { class: "cards" }, [rewards, arms, context, ahead, best, contextAhead, waiting, latency, health].map((card) => card.element));
  const samples = [];
  let coordinate = 0;

  async function update(signal) {
    const series = await getJson(`${path}/series?points=${POINTS}&coordinate=${coordinate}`, signal).catch((error) => {
      if (error.status === 404) showMissing();
      throw error;
    });
    [tiles.element.hidden, cards.hidden] = [false, false];
    showLead(lead, series.shown, series.now);
    setNote(degraded, series.service.degraded);
    tiles.show(series);
    addSample(samples, series);
    await Promise.all([
      showRewards(rewards, series.rewards, path),
      showArms(arms, series.arms),
      showContext(context, choice, select, series.context),
      showAhead(ahead, series.forecast),
      showBest(best, series.forecast),
      showContextAhead(contextAhead, series.forecast),
      showWaiting(waiting, series.waiting, series.shown, series.delays),
      showLatency(latency, samples),
    ]);
  }
  // The stream may be created later, so the page continues to send requests.
  function showMissing() {
    [tiles.element.hidden, cards.hidden] = [true, true];
    setText(lead, "There is no stream with this name.");
  }
  select.addEventListener("change", () => {
    coordinate = Number(select.value);
    update().catch(() => {}); // the next regular update shows the error
  });

  return {
    elements: [
      make("p", {}, make("a", { href: "#/" }, "All streams")),
      make("h1", {}, name),
      degraded,
      lead,
      tiles.element,
      cards,
    ],
    update,
    updateRarely: async (signal) => health.show(await getJson(`${path}/health`, signal)),
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
      [count(shown.decisions), shown.all ? "all decisions" : "the most recent"],
      interval(rewards.mean),
      rewards.uniform.told || !rewards.round.length ? interval(rewards.uniform.snips) : ["–", "no reliable estimate"],
      [count(waiting.count), waiting.oldest === null ? "none" : `oldest: ${duration(waiting.oldest)}`],
      decide?.count ? [duration(decide.p99), `median: ${duration(decide.p50)}`] : ["–", "no requests yet"],
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
  if (!shown.decisions) return setText(lead, "There are no decisions yet.");
  const range = `This page shows decisions ${count(shown.first)} to ${count(shown.last)}. The first of them was made ${ago(now - shown.since)}.`;
  setText(lead, shown.all ? range : `${range} Older decisions are in the journal.`);
}

function showRewards(card, series, path) {
  if (!series.round.length) {
    return card.showEmpty(`There are no rewards yet. Send the reward of a decision with POST ${path}/rewards {"decision": "…", "value": 1.5}`);
  }
  const { uniform } = series;
  const main = uniform.told ? uniform.snips : null;
  const last = (line) => `${number(line.value.at(-1))} (${number(line.low.at(-1))} to ${number(line.high.at(-1))})`;
  return card.show({
    summary: `mean ${last(series.mean)}, uniform policy ${main ? last(main) : "without a reliable estimate"}, after ${count(series.count.at(-1))} rewards`,
    note: uniform.note,
    traces: () => {
      const colours = theme();
      return [
        ...(main ? bandTraces(series.round, main, "uniform policy", colours.two) : [lineTrace(series.round, uniform.dr.value, "uniform policy (expected by the agent)", colours.two, "dash")]),
        lineTrace(series.round, series.recent, `this stream, last ${count(series.span)} rewards`, colours.three, "dot"),
        ...bandTraces(series.round, series.mean, "this stream", colours.one),
      ];
    },
    options: { x: "decision", y: "mean reward", range: rangeWithoutStart([series.mean.low, series.mean.high, ...(main ? [main.low, main.high] : [uniform.dr.value])]) },
    headings: ["Decision", "Time", "Rewards", "Mean", "Low", "High", `Last ${series.span}`, "Uniform (self-normalised)", "Low", "High", "Uniform (IPS)", "Uniform (doubly robust)"],
    rows: () =>
      series.round.map((round, at) => [
        count(round),
        dateTime(series.time[at]),
        count(series.count[at]),
        ...[series.mean.value, series.mean.low, series.mean.high, series.recent, uniform.snips.value, uniform.snips.low, uniform.snips.high, uniform.ips.value, uniform.dr.value].map((values) => number(values[at])),
      ]),
  });
}

function showArms(card, series) {
  if (!series.round.length) return card.showEmpty("There are no decisions yet.");
  const most = series.total.indexOf(Math.max(...series.total));
  // An area needs two points, so a single block is drawn with its value at both ends.
  const x = series.round.length === 1 ? [Math.min(1, series.round[0]), series.round[0]] : series.round;
  const patterns = ["", "/", "", "\\", "", "x", "", "-", "", "|", "", "+", "."];
  return card.show({
    summary: `${series.arms[most]} was chosen most often, in ${percent(series.total[most])} of the decisions shown`,
    traces: () => {
      const { palette } = theme();
      return series.arms.map((arm, at) => areaTrace(x, x.map((_, i) => series.share[at][Math.min(i, series.share[at].length - 1)]), arm, palette[at % palette.length], patterns[at % patterns.length]));
    },
    options: { x: "decision", y: "share", range: [0, 1], percent: true },
    headings: ["Up to decision", ...series.arms],
    rows: () => [...series.round.map((round, at) => [count(round), ...series.share.map((share) => percent(share[at]))]), ["all", ...series.total.map(percent)]],
  });
}

function showContext(card, choice, select, series) {
  choice.hidden = series.why !== null;
  if (series.why !== null) return card.showEmpty(series.why);
  const names = series.coordinates;
  if (select.options.length !== names.length || names.some((name, at) => select.options[at].text !== name)) {
    select.replaceChildren(...names.map((name, at) => make("option", { value: at }, name)));
  }
  if (document.activeElement !== select) select.value = String(series.coordinate);
  const name = names[series.coordinate];
  const { line } = series;
  return card.show({
    summary: `${name} is estimated at ${number(line.value.at(-1))}, between ${number(line.low.at(-1))} and ${number(line.high.at(-1))}`,
    traces: () => {
      const colours = theme();
      const observed = { x: series.round, y: series.seen, name: "observed", type: "scatter", mode: "markers", marker: { color: colours.two, size: 3, opacity: 0.7 } };
      return [...bandTraces(series.round, line, name, colours.one), ...(series.seen.some((value) => value !== null) ? [observed] : [])];
    },
    options: { x: "decision", y: name },
    headings: ["Decision", name, "Low", "High", "Observed"],
    rows: () => series.round.map((round, at) => [count(round), number(line.value[at]), number(line.low[at]), number(line.high[at]), number(series.seen[at])]),
  });
}

function showAhead(card, series) {
  if (series.why !== null) return card.showEmpty(series.why);
  const at = series.value.map((line, arm) => [line.value[0], arm]).reduce((one, other) => (other[0] > one[0] ? other : one))[1];
  const first = series.value[at];
  return card.show({
    summary: `${series.arms[at]} is expected to pay ${number(first.value[0])}, between ${number(first.low[0])} and ${number(first.high[0])}, in the next round`,
    note: series.others ? `The arms that are most likely to be the best. ${count(series.others)} others are not shown.` : null,
    traces: () => {
      const { palette } = theme();
      return series.arms.flatMap((arm, i) => bandTraces(series.ahead, series.value[i], arm, palette[i], DASHES[i]));
    },
    options: { x: "rounds ahead", y: "expected reward" },
    headings: ["Rounds ahead", ...series.arms.flatMap((arm) => [arm, "Low", "High"])],
    rows: () => series.ahead.map((rounds, i) => [count(rounds), ...series.value.flatMap((line) => [line.value[i], line.low[i], line.high[i]].map(number))]),
  });
}

function showBest(card, series) {
  if (series.why !== null) return card.showEmpty(series.why);
  const last = series.best.map((line) => line.at(-1));
  const most = last.indexOf(Math.max(...last));
  return card.show({
    summary: `in ${count(series.ahead.length)} rounds, ${series.arms[most]} is the best arm with a probability of ${percent(last[most])}`,
    note: series.others ? `The arms that are most likely to be the best. ${count(series.others)} others are not shown.` : null,
    traces: () => {
      const { palette } = theme();
      return series.arms.map((arm, i) => lineTrace(series.ahead, series.best[i], arm, palette[i], DASHES[i]));
    },
    options: { x: "rounds ahead", y: "probability", range: [-0.02, 1.02], percent: true },
    headings: ["Rounds ahead", ...series.arms],
    rows: () => series.ahead.map((rounds, i) => [count(rounds), ...series.best.map((line) => percent(line[i]))]),
  });
}

function showContextAhead(card, series) {
  if (series.why !== null) return card.showEmpty(series.why);
  const { context: line, coordinate: name } = series;
  return card.show({
    summary: `${name} is expected at ${number(line.value.at(-1))}, between ${number(line.low.at(-1))} and ${number(line.high.at(-1))}, in ${count(series.ahead.length)} rounds`,
    traces: () => bandTraces(series.ahead, line, name, theme().one),
    options: { x: "rounds ahead", y: name, legend: false },
    headings: ["Rounds ahead", name, "Low", "High"],
    rows: () => series.ahead.map((rounds, i) => [count(rounds), number(line.value[i]), number(line.low[i]), number(line.high[i])]),
  });
}

function showWaiting(card, series, shown, delays) {
  if (!shown.decisions) return card.showEmpty("There are no decisions yet.");
  const delay = delays.p50.length ? ` The median delay of a reward is ${duration(delays.p50.at(-1))}, the 90th percentile ${duration(delays.p90.at(-1))}.` : "";
  setText(card.about, `Decisions in these charts that have no reward yet, by age.${delay}`);
  if (!series.count) return card.showEmpty("Every decision shown has a reward or has expired.");
  return card.show({
    summary: `${count(series.count)} without a reward, the oldest for ${duration(series.oldest)}`,
    note: delay ? null : "No decision shown has a reward yet.",
    traces: () => [barTrace(series.ages, series.counts, theme().one)],
    options: { x: "age", y: "decisions", legend: false, categories: true },
    headings: ["Age, or id of a decision", "Number of decisions, or age and arm"],
    rows: () => [...series.ages.map((age, at) => [age, count(series.counts[at])]), ...series.decisions.map((one) => [one.id, `${duration(one.age)}, ${one.arm}`])],
  });
}

function addSample(samples, { now, service }) {
  const { decide, reward } = service.latencies;
  if (!decide?.count && !reward?.count) return;
  samples.push({ now, decide, reward });
  if (samples.length > MAX_SAMPLES) samples.shift();
}

function showLatency(card, samples) {
  if (!samples.length) return card.showEmpty("This worker has had no requests yet.");
  const last = samples.at(-1);
  const x = samples.map((one) => Math.round(one.now - last.now));
  const milliseconds = (kind, quantile) => samples.map((one) => (one[kind]?.count ? 1000 * one[kind][quantile] : null));
  return card.show({
    summary: `the median latency of decisions is ${duration(last.decide?.p50)}, the 99th percentile ${duration(last.decide?.p99)}`,
    traces: () => {
      const colours = theme();
      return [
        lineTrace(x, milliseconds("decide", "p99"), "decisions, p99", colours.two),
        lineTrace(x, milliseconds("decide", "p50"), "decisions, p50", colours.one),
        lineTrace(x, milliseconds("reward", "p99"), "rewards, p99", colours.three, "dot"),
      ];
    },
    options: { x: "seconds from now", y: "milliseconds", log: true },
    headings: ["Seconds from now", "Decisions p50", "Decisions p90", "Decisions p99", "Rewards p50", "Rewards p99"],
    rows: () => samples.map((one, at) => [String(x[at]), ...["p50", "p90", "p99"].map((q) => duration(one.decide?.[q])), ...["p50", "p99"].map((q) => duration(one.reward?.[q]))]).reverse(),
  });
}
