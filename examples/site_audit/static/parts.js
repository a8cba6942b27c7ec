/** The parts of the page that are drawn. What sites wrote is only ever text here. */

const SVG = "http://www.w3.org/2000/svg";

export function element(name, properties, content = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...[content].flat().map((one) => one ?? ""));
  return made;
}

function drawn(name, attributes, content = []) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...[content].flat());
  return made;
}

export function severityChip(severity) {
  return element("span", { className: `chip ${severity}` }, severity);
}

/** The score as a ring. */
export function ring(score) {
  const length = 2 * Math.PI * 44;
  const kind = score >= 90 ? "good" : score >= 70 ? "fair" : score >= 50 ? "poor" : "bad";
  return drawn("svg", { class: `ring ${kind}`, viewBox: "0 0 100 100", role: "img", "aria-label": `Score ${score} of 100` }, [
    drawn("circle", { class: "track", cx: 50, cy: 50, r: 44 }),
    drawn("circle", {
      class: "value", cx: 50, cy: 50, r: 44, transform: "rotate(-90 50 50)",
      "stroke-dasharray": `${(length * score) / 100} ${length}`,
    }),
    drawn("text", { x: 50, y: 61, "text-anchor": "middle" }, String(score)),
  ]);
}

/** The scores of a site over time; each point leads to its audit. */
export function historyChart(history, current) {
  const [width, height, left, top, bottom] = [640, 200, 58, 20, 34]; // words are large where the chart is small
  const x = (n) => left + 12 + (n * (width - left - 24)) / Math.max(1, history.length - 1);
  const y = (score) => top + ((100 - score) * (height - top - bottom)) / 100;
  const [first, last] = [history[0], history.at(-1)].map((audit) => new Date(audit.completed_at).toLocaleDateString());
  const day = (audit) => first === last
    ? new Date(audit.completed_at).toLocaleTimeString([], { hour: "numeric", minute: "2-digit" })
    : new Date(audit.completed_at).toLocaleDateString();
  const scores = history.map((audit) => audit.score);
  return drawn("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Scores of ${history.length} audits, from ${scores[0]} to ${scores.at(-1)}`,
  }, [
    ...[0, 50, 100].flatMap((score) => [
      drawn("line", { class: "grid", x1: left, x2: width, y1: y(score), y2: y(score) }),
      drawn("text", { x: left - 6, y: y(score) + 4, "text-anchor": "end" }, String(score)),
    ]),
    drawn("polyline", { class: "line", points: scores.map((score, n) => `${x(n)},${y(score)}`).join(" ") }),
    ...history.map((audit, n) => drawn("a", { href: `/audits/${audit.id}` }, drawn("circle", {
      class: audit.id === current ? "point current" : "point", cx: x(n), cy: y(audit.score), r: audit.id === current ? 7 : 5,
    }, drawn("title", {}, `${day(audit)}: ${audit.score}`)))),
    drawn("text", { x: left, y: height - 8 }, day(history[0])),
    drawn("text", { x: width - 4, y: height - 8, "text-anchor": "end" }, day(history.at(-1))),
  ]);
}
