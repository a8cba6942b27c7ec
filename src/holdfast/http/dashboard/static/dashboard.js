// Keeps pages live without getting in the way: what somebody has opened, selected, focused or typed stays as it is. Pages
// work without it, too; then nothing moves.
"use strict";

const POLL = 3000; // milliseconds between two looks where events don't come through
const live = document.getElementById("live");
const pulse = document.getElementById("pulse");

// -- times ---------------------------------------------------------------------------------------------------------

const UNITS = [["d", 86400], ["h", 3600], ["m", 60]];
// The database's clock against ours, by the moment at which this page came: on a slow machine scripts run later.
const arrived = performance.getEntriesByType("navigation")[0]?.responseStart || performance.now();
const ahead = Date.parse(document.body.dataset.now) - performance.timeOrigin - arrived;

function short(seconds) {
  for (const [unit, length] of UNITS) {
    if (seconds >= 1.99 * length || seconds === length) return `${Math.round(seconds / length)}${unit}`;
  }
  return seconds >= 1 || seconds === 0 ? `${Math.round(seconds)}s` : `${Math.round(seconds * 1000)}ms`;
}

function tellTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const seconds = Math.round((Date.parse(time.dateTime) - Date.now() - ahead) / 1000);
    const text = seconds > 0 ? `in ${short(seconds)}` : `${short(-seconds)} ago`;
    if (time.firstChild?.nodeValue !== text) time.textContent = text;
  }
}

// -- live ----------------------------------------------------------------------------------------------------------

let morph = null; // htmx's: changes a part of the page into another, and keeps the elements that stay
let waiting = null; // what came while somebody was busy with the page
let source = null;
let polling = null;

htmx.registerExtension("holdfast", {
  init(api) { morph = api.morph; },
  // What somebody has opened stays open: the server does not know of it.
  htmx_before_morph_attr(element, detail) {
    if (detail.attrName === "open" && ["DETAILS", "DIALOG"].includes(element.tagName)) return false;
    if (detail.attrName === "data-current") return false;
    return true;
  },
});

function busy() {
  if (document.hidden || document.querySelector("#live details.menu[open], dialog[open]")) return true;
  const selection = getSelection();
  return selection.type === "Range" && live.contains(selection.anchorNode);
}

// What somebody who has scrolled down has before them stays there, whatever comes above it.
function reading() {
  if (scrollY === 0) return [null, 0];
  for (const element of live.querySelectorAll("tr[id], li[id], section[id], details[id]")) {
    const { top, height } = element.getBoundingClientRect();
    if (top >= 0 && height) return [element, top];
  }
  return [null, 0];
}

function show(html) {
  if (busy()) { waiting = html; return; }
  waiting = null;
  const template = document.createElement("template");
  template.innerHTML = html;
  tellTimes(template.content);
  const [read, top] = reading();
  morph(live, template.content, true);
  if (read?.isConnected) scrollBy(0, read.getBoundingClientRect().top - top);
  htmx.process(live);
  live.dispatchEvent(new CustomEvent("holdfast:shown", { bubbles: true }));
}

function catchUp() { if (waiting !== null && !busy()) show(waiting); }

function say(kind, text) { pulse.dataset.kind = kind; pulse.textContent = text; }

function connect() {
  if (!live.dataset.live || document.hidden) return;
  const seen = live.dataset.seen ? `&seen=${live.dataset.seen}` : "";
  source = new EventSource(live.dataset.live + seen);
  let came = false;
  source.onopen = () => { came = true; clearInterval(polling); polling = null; say("live", "Live"); };
  source.addEventListener("view", (event) => { live.dataset.seen = event.lastEventId; say("live", "Live"); show(event.data); });
  source.addEventListener("away", (event) => say("away", event.data));
  source.addEventListener("gone", (event) => { disconnect(); say("away", event.data); });
  source.onerror = () => {
    say("away", "Not connected: trying again");
    if (source.readyState === EventSource.CLOSED || !came) poll();
  };
}

function disconnect() { source?.close(); source = null; clearInterval(polling); polling = null; }

function poll() {
  if (polling !== null) return;
  polling = setInterval(async () => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live");
      if (fresh && fresh.dataset.seen !== live.dataset.seen) { live.dataset.seen = fresh.dataset.seen; show(fresh.innerHTML); }
      say("live", "Live");
    } catch { say("away", "Not connected: trying again"); }
  }, POLL);
}

document.addEventListener("visibilitychange", () => { if (document.hidden) disconnect(); else { connect(); catchUp(); } });
document.addEventListener("toggle", catchUp, true);
document.addEventListener("close", catchUp, true);
document.addEventListener("selectionchange", catchUp);
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

// -- menus, copying, colours ------------------------------------------------------------------------------------------

document.addEventListener("click", async (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const button = event.target.closest("[data-copy]");
  if (button) {
    const text = document.getElementById(button.dataset.copy).textContent;
    try { await navigator.clipboard.writeText(text); } catch {
      // Without https there is no clipboard: the old way.
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    }
    button.dataset.done = "yes";
    setTimeout(() => delete button.dataset.done, 1500);
  }
});

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const next = { undefined: "dark", dark: "light", light: undefined }[document.documentElement.dataset.theme];
  if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
  try { if (next) localStorage.setItem("holdfast-theme", next); else localStorage.removeItem("holdfast-theme"); } catch { /* off */ }
  theme.title = next ?? "system";
});

// -- keys --------------------------------------------------------------------------------------------------------------

let went = 0; // when `g` was pressed

function rows() { return [...document.querySelectorAll("table.rows tbody tr[id]")]; }

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.dataset.current);
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  for (const row of all) delete row.dataset.current;
  next.dataset.current = "yes";
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (event.key === "Escape") {
    const menu = document.querySelector("details.menu[open]");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); } else if (typing) event.target.blur();
    return;
  }
  if (typing || document.querySelector("dialog[open]")) return;
  const row = document.querySelector("table.rows tr[data-current]");
  if (went && Date.now() - went < 1500) {
    went = 0;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const keys = {
    g() { went = Date.now(); },
    j() { move(1); },
    k() { move(-1); },
    "/"() { document.querySelector("[data-search]")?.focus(); },
    "?"() { document.getElementById("help").showModal(); },
    x() { row?.querySelector("input[type=checkbox]")?.click(); },
    Enter() { if (row && event.target === document.body) row.querySelector("a[href]")?.click(); },
    "."() {
      const menu = (row ?? document).querySelector("details.menu, [data-actions] summary");
      const summary = menu?.querySelector("summary") ?? menu;
      if (summary) { summary.click(); summary.focus(); }
    },
  };
  if (Object.hasOwn(keys, event.key)) { if (event.key !== "Enter") event.preventDefault(); keys[event.key](); }
});

tellTimes();
setInterval(tellTimes, 1000);
connect();
