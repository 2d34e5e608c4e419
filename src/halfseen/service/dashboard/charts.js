// Charts by plotly, which is fetched when a stream is first looked at. Colours are those of the style sheet.

let loading = null;

// plotly's map library puts a style element into the head as soon as it is read. There are no maps here, and the
// page's policy would refuse the element with a complaint, so it is dropped.
function withoutStyles() {
  const head = document.head;
  head.appendChild = (node) => (node instanceof HTMLStyleElement ? node : Node.prototype.appendChild.call(head, node));
  return () => delete head.appendChild;
}

export function loadPlotly() {
  loading ??= new Promise((resolve) => {
    const restore = withoutStyles();
    const script = document.createElement("script");
    script.src = "/dashboard/plotly.min.js";
    script.addEventListener("load", () => resolve((restore(), window.Plotly ?? null)));
    script.addEventListener("error", () => {
      restore();
      script.remove();
      loading = null; // the next look tries again
      resolve(null);
    });
    document.head.append(script);
  });
  return loading;
}

const PALETTE = {
  light: ["#1d5fa8", "#d17a00", "#1f8a5b", "#b03a5b", "#6a51a3", "#7a6a2f", "#1a8f9c", "#a04a1f", "#5b6b7d", "#c2408f", "#3f7d20", "#8c6bb1"],
  dark: ["#7db3f5", "#f2b04f", "#6fd0a2", "#f08aa6", "#b9a3ef", "#d3c27a", "#6fd6e0", "#e69a74", "#aab6c4", "#ee9ad0", "#a3d67f", "#cbb2ea"],
};

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: get("ink"), soft: get("soft"), grid: get("grid"), card: get("card"), line: get("line"), one: get("series-1"), two: get("series-2"), three: get("series-3"), palette: dark ? PALETTE.dark : PALETTE.light };
}

function faint(colour, opacity) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${opacity})`;
}

// plotly reads a little markup in what it writes; names are only ever text.
const escaped = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

// A band, and the line in it.
export function banded(x, line, name, colour, dash = "solid") {
  const band = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, type: "scatter" };
  return [
    { ...band, y: line.low },
    { ...band, y: line.high, fill: "tonexty", fillcolor: faint(colour, 0.18) },
    lined(x, line.value, name, colour, dash),
  ];
}

export function lined(x, y, name, colour, dash = "solid") {
  return { x, y, name: escaped(name), type: "scatter", mode: x.length === 1 ? "markers" : "lines", line: { color: colour, width: 2, dash }, marker: { color: colour } };
}

export function stacked(x, y, name, colour, pattern) {
  return { x, y, name: escaped(name), type: "scatter", mode: "lines", stackgroup: "all", line: { width: 0.5, color: colour }, fillcolor: faint(colour, 0.75), fillpattern: pattern ? { shape: pattern, fgcolor: colour, bgcolor: faint(colour, 0.35), size: 7, solidity: 0.3 } : undefined };
}

export function bars(x, y, colour) {
  return { x, y, type: "bar", marker: { color: colour }, text: y.map((n) => (n ? String(n) : "")), textposition: "outside", cliponaxis: false };
}

// The range that lines with bands need, but for the first tenth of the points, whose intervals are wide.
export function settledRange(lines) {
  const late = lines.flatMap((line) => line.slice(Math.floor(line.length / 10))).filter((value) => value !== null);
  if (lines[0].length < 10 || late.length === 0) return undefined;
  const [low, high] = [Math.min(...late), Math.max(...late)];
  const room = 0.08 * (high - low) || 1;
  return [low - room, high + room];
}

// Every tick of a logarithmic axis with its whole number: 1, 2, 5, 10 …, or only powers of ten where there are many.
function logTicks(values) {
  const seen = values.filter((value) => value > 0);
  const many = Math.max(...seen) / Math.min(...seen) > 300;
  const ticks = [-2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => (many ? [1] : [1, 2, 5]).map((first) => Number(`${first}e${power}`)));
  return { tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => tick.toLocaleString("en")) };
}

export async function draw(element, traces, { x, y, range, legend = true, categories = false, percent = false, log = false }) {
  const plotly = await loadPlotly();
  if (plotly === null) {
    element.textContent = "The charts cannot be loaded: the package plotly is missing where the service runs (pip install 'halfseen[service]'). The numbers are in the table below.";
    return;
  }
  const look = theme();
  const xs = traces[0].x;
  const xRange = categories || xs.length < 2 ? undefined : [xs[0], xs.at(-1)];
  const axis = { gridcolor: look.grid, linecolor: look.line, zerolinecolor: look.grid, fixedrange: true, automargin: true, tickfont: { size: 12 }, title: { font: { size: 12, color: look.soft }, standoff: 6 } };
  const layout = {
    autosize: true,
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: { family: "system-ui, sans-serif", color: look.ink, size: 12 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: look.card, bordercolor: look.line, font: { color: look.ink, size: 12 } },
    dragmode: false,
    showlegend: legend,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
    xaxis: { ...axis, title: { ...axis.title, text: x }, range: xRange, type: categories ? "category" : "linear", tickformat: categories ? undefined : ",~r" },
    yaxis: { ...axis, title: { ...axis.title, text: escaped(y) }, range, tickformat: percent ? ".0%" : undefined, rangemode: categories ? "tozero" : "normal", type: log ? "log" : "linear", ...(log ? logTicks(traces.flatMap((trace) => trace.y)) : {}) },
  };
  await plotly.react(element, traces, layout, { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false });
}
