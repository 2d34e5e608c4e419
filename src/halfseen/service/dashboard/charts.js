// Charts drawn by plotly, which is loaded with the first chart. The colours come from the style sheet.

let loading = null;

// plotly's map library adds a style element to the head when it is loaded. The content security policy of this page
// would report the element as an error. The page has no maps, so the element is ignored.
function ignoreStyleElements() {
  const head = document.head;
  head.appendChild = (node) => (node instanceof HTMLStyleElement ? node : Node.prototype.appendChild.call(head, node));
  return () => delete head.appendChild;
}

export function loadPlotly() {
  loading ??= new Promise((resolve) => {
    const restore = ignoreStyleElements();
    const script = document.createElement("script");
    script.src = "/dashboard/plotly.min.js";
    script.addEventListener("load", () => resolve((restore(), window.Plotly ?? null)));
    script.addEventListener("error", () => {
      restore();
      script.remove();
      loading = null; // the next chart tries again
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

// plotly interprets some markup in labels, but names of arms and features are plain text.
const escaped = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

// A line with a band for its intervals.
export function bandTraces(x, line, name, colour, dash = "solid") {
  const band = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, type: "scatter" };
  return [
    { ...band, y: line.low },
    { ...band, y: line.high, fill: "tonexty", fillcolor: faint(colour, 0.18) },
    lineTrace(x, line.value, name, colour, dash),
  ];
}

export function lineTrace(x, y, name, colour, dash = "solid") {
  return { x, y, name: escaped(name), type: "scatter", mode: x.length === 1 ? "markers" : "lines", line: { color: colour, width: 2, dash }, marker: { color: colour } };
}

export function areaTrace(x, y, name, colour, pattern) {
  return { x, y, name: escaped(name), type: "scatter", mode: "lines", stackgroup: "all", line: { width: 0.5, color: colour }, fillcolor: faint(colour, 0.75), fillpattern: pattern ? { shape: pattern, fgcolor: colour, bgcolor: faint(colour, 0.35), size: 7, solidity: 0.3 } : undefined };
}

export function barTrace(x, y, colour) {
  return { x, y, type: "bar", marker: { color: colour }, text: y.map((n) => (n ? String(n) : "")), textposition: "outside", cliponaxis: false };
}

// The range of the values without the first tenth of the points, where the intervals are too wide.
export function rangeWithoutStart(lines) {
  const later = lines.flatMap((line) => line.slice(Math.floor(line.length / 10))).filter((value) => value !== null);
  if (lines[0].length < 10 || later.length === 0) return undefined;
  const [low, high] = [Math.min(...later), Math.max(...later)];
  const margin = 0.08 * (high - low) || 1;
  return [low - margin, high + margin];
}

// Ticks of a logarithmic axis at 1, 2, 5, 10 …, or only at powers of ten if the range is large.
function logTicks(values) {
  const positive = values.filter((value) => value > 0);
  const many = Math.max(...positive) / Math.min(...positive) > 300;
  const ticks = [-2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => (many ? [1] : [1, 2, 5]).map((first) => Number(`${first}e${power}`)));
  return { tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => tick.toLocaleString("en")) };
}

export async function draw(element, traces, { x, y, range, legend = true, categories = false, percent = false, log = false }) {
  const plotly = await loadPlotly();
  if (plotly === null) {
    element.textContent = "The charts cannot be shown, because the package plotly is not installed with the service. Install it with: pip install 'halfseen[service]'. The table below has the numbers.";
    return;
  }
  const colours = theme();
  const xs = traces[0].x;
  const xRange = categories || xs.length < 2 ? undefined : [xs[0], xs.at(-1)];
  const axis = { gridcolor: colours.grid, linecolor: colours.line, zerolinecolor: colours.grid, fixedrange: true, automargin: true, tickfont: { size: 12 }, title: { font: { size: 12, color: colours.soft }, standoff: 6 } };
  const layout = {
    autosize: true,
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: { family: "system-ui, sans-serif", color: colours.ink, size: 12 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 } },
    dragmode: false,
    showlegend: legend,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
    xaxis: { ...axis, title: { ...axis.title, text: x }, range: xRange, type: categories ? "category" : "linear", tickformat: categories ? undefined : ",~r" },
    yaxis: { ...axis, title: { ...axis.title, text: escaped(y) }, range, tickformat: percent ? ".0%" : undefined, rangemode: categories ? "tozero" : "normal", type: log ? "log" : "linear", ...(log ? logTicks(traces.flatMap((trace) => trace.y)) : {}) },
  };
  await plotly.react(element, traces, layout, { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false });
}
