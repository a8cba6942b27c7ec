// Draws the charts: once for each figure, then with each new piece of data that the live part of the page brings. Without
// this script, the tables below the charts say the same.
"use strict";

const drawn = new Map(); // id of a figure -> what was drawn there

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function told(value, unit) {
  if (value == null) return "";
  if (value === 0) return "0";
  if (unit === "ms") {
    const [length, name] = [[86400000, "d"], [3600000, "h"], [60000, "m"], [1000, "s"]].find(([ms]) => value >= ms) ?? [1, "ms"];
    return `${+(value / length).toPrecision(2)}${name}`;
  }
  return value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

const DATES = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const HOURS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const TIMES = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const COLOURS = { succeeded: "--c1", failed: "--c2", cancelled: "--c3", enqueued: "--c8", p50: "--c4", p95: "--c5" };

// The time of day; at midnight, and where a step is a day or more, the date.
function when(plot, splits, axis, space, step) {
  return splits.map((at) => {
    const date = new Date(at * 1000);
    return step >= 86400 || (date.getHours() === 0 && date.getMinutes() === 0) ? DATES.format(date) : HOURS.format(date);
  });
}

// Where lines stand on a scale of times: at what people count in.
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];
const LENGTHS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...SECONDS.map((seconds) => 1000 * seconds)];

function options(data, box) {
  const axis = { stroke: colour("--dim"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(200, box.clientWidth), height: 190,
    legend: { live: true },
    cursor: { drag: { setScale: false }, points: { size: 6 } },
    scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.08 : data.unit === "ms" ? 1000 : 1] } },
    axes: [{ ...axis, space: 70, size: 28, values: when }, { ...axis, size: 56, incrs: data.unit === "ms" ? LENGTHS : undefined, values: (plot, splits) => splits.map((value) => told(value, data.unit)) }],
    series: [
      { label: "", value: (plot, at) => at == null ? "" : TIMES.format(new Date(at * 1000)) },
      ...data.lines.map((line) => ({
        label: line.name, stroke: colour(COLOURS[line.name] ?? `--c${line.colour % 8 + 1}`), width: 1.75,
        dash: line.name === "enqueued" ? [4, 4] : undefined, spanGaps: false,
        points: { show: (plot, series) => isolated(plot.data[series]).length > 0, filter: (plot, series) => isolated(plot.data[series]), size: 4 },
        value: (plot, value) => told(value, data.unit),
      })),
    ],
  };
}

// Where values have no neighbours: they make no line, and without points nobody would see them.
function isolated(values) { return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null); }

function values(data) { return [data.at, ...data.lines.map((line) => line.values)]; }

function draw(figure) {
  const box = figure.querySelector(".plot");
  if (!box) return;
  const data = JSON.parse(figure.dataset.chart);
  const before = drawn.get(figure.id);
  const lines = JSON.stringify(data.lines.map((line) => [line.name, line.colour]));
  if (before?.box === box && before.lines === lines) {
    if (before.text !== figure.dataset.chart) { before.text = figure.dataset.chart; before.plot.setData(values(data)); }
    return;
  }
  if (before) { before.plot.destroy(); watcher.unobserve(before.box); }
  const plot = new uPlot(options(data, box), values(data), box);
  drawn.set(figure.id, { plot, box, lines, text: figure.dataset.chart });
  watcher.observe(box);
}

function drawAll() {
  for (const [id, { plot, box }] of drawn) if (!box.isConnected) { plot.destroy(); watcher.unobserve(box); drawn.delete(id); }
  for (const figure of document.querySelectorAll("figure[data-chart]")) draw(figure);
}

function again() {
  for (const { plot, box } of drawn.values()) { plot.destroy(); watcher.unobserve(box); }
  drawn.clear();
  drawAll();
}

const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) for (const { plot, box } of drawn.values()) {
    if (box === target && Math.abs(plot.width - box.clientWidth) > 1 && box.clientWidth) plot.setSize({ width: box.clientWidth, height: 190 });
  }
});

drawAll();
document.addEventListener("holdfast:shown", drawAll);
new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
