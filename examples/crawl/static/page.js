// Starts crawls, shows how one stands, and steers it. What the server says is asked for again each second.

const $ = (id) => document.getElementById(id);
const EXPORTS = { pages: "Pages", links: "Links", "dead-links": "Dead links", errors: "Errors", skipped: "Skipped" };
const WORDS = { pending: "Waiting", processing: "Crawling", completed: "Done", failed: "Failed", paused: "Paused", cancelled: "Cancelled" };
const OFFERED = {
  pending: ["pause", "cancel"], processing: ["pause", "cancel"], paused: ["resume", "cancel"], failed: ["retry"],
  cancelled: ["retry"], completed: [],
};
const AFTERWARDS = { todo: "to be tried again", dead: "given up" };
const LOOK = 1000; // milliseconds
const HISTORY = 120; // looks that the chart shows

const speeds = []; // pages a second of the crawl that is shown
let shown = null; // its id
let asked = null; // the verb that was asked for, until it has taken effect

// -- asking -----------------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const options = body && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const answer = await fetch(path, { cache: "no-store", ...options });
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(document.error ?? `the server answered ${answer.status}`), { status: answer.status });
  return document;
}

async function look() {
  try {
    const [all, one] = await Promise.all([ask("/crawls"), shown && ask(`/crawls/${shown}`)]);
    list(all);
    if (one && one.id === shown) crawl(one);
    else if (!shown && all.crawls.length) return show(all.crawls[0].id);
    if ($("error").dataset.lost) complain("");
  } catch (error) {
    complain(error.status === 404 ? "There is no such crawl." : `The server can't be asked: ${error.message}`, true);
  }
}

async function show(id) {
  if (id !== shown) speeds.length = 0;
  shown = id;
  asked = null;
  history.replaceState(null, "", `#${id}`);
  await look();
}

async function begin() {
  const number = (id) => ($(id).value === "" ? null : Number($(id).value));
  const { id } = await ask("/crawls", {
    start_url: $("start_url").value, scope: $("scope").value, delay: number("delay"), max_depth: number("max_depth"),
    max_pages: number("max_pages"),
  });
  await show(id);
  $("crawl").focus({ preventScroll: true });
}

async function steer(verb) {
  asked = verb;
  await ask(`/crawls/${shown}/${verb}`, {});
  await look();
}

// -- showing ----------------------------------------------------------------------------------------------------------

function complain(text, lost = false) {
  $("error").textContent = text;
  $("error").hidden = !text;
  $("error").dataset.lost = lost ? "yes" : "";
}

function crawl(one) {
  $("crawl").hidden = false;
  put("url", one.start_url);
  const leaving = one.status === "processing" && asked && asked !== "resume" && asked !== "retry";
  if (!leaving && one.status !== "processing") asked = null;
  put("status", leaving ? { pause: "Pausing…", cancel: "Stopping…" }[asked] : WORDS[one.status]);
  $("status").className = `chip ${one.status}`;
  put("message", one.error_message ?? "");
  $("message").hidden = one.status !== "failed";
  for (const button of $("crawl").querySelectorAll("[data-verb]")) {
    button.hidden = !OFFERED[one.status].includes(button.dataset.verb);
    button.disabled = Boolean(leaving);
  }
  const done = one.pages + one.dead + one.skipped + one.redirected;
  figures([
    ["Pages", count(one.pages)], ["Pages/s", one.pages_a_second.toFixed(1)], ["Pending", count(one.todo)],
    ["Hosts", count(one.hosts_known)], ["Errors", count(one.errors)], ["Dead", count(one.dead)],
    ["Skipped", count(one.skipped)], ["Links", count(one.links)], ["Read", size(one.bytes)],
    ["Attempt", `${one.retry_count + 1} of ${one.max_retries}`],
  ]);
  $("bar").value = done + one.todo ? done / (done + one.todo) : 0;
  speeds.push(one.status === "processing" ? one.pages_a_second : 0);
  if (speeds.length > HISTORY) speeds.shift();
  chart();
  table(one.hosts);
  replace("errors", one.newest_errors.map((error) => element("li", {}, [
    element("code", {}, error.code), link(error.url), element("small", {}, `${error.message} (${AFTERWARDS[error.state] ?? "it worked later"})`),
  ])), "None.");
  replace("pages", one.newest_pages.map((page) => element("li", {}, [
    link(page.url, page.title || page.url), element("small", {}, `${page.url} · ${size(page.size)}${page.status === 304 ? " · unchanged" : ""}`),
  ])), "None yet.");
  replace("exports", Object.entries(EXPORTS).map(([name, text]) =>
    element("a", { href: `/crawls/${one.id}/${name}.csv`, download: "" }, `${text} (CSV)`)));
}

function figures(pairs) {
  replace("figures", pairs.map(([name, value]) => element("div", {}, [element("dt", {}, name), element("dd", {}, value)])));
}

function table(hosts) {
  const row = (cells, tag = "td") => element("tr", {}, cells.map((cell) => element(tag, {}, cell)));
  const robots = (status) => (status === null ? "not read" : status === 200 ? "read" : `none (${status})`);
  const state = (host) => (host.asks_to_wait > 0 ? `asks to wait ${Math.ceil(host.asks_to_wait)} s` : "");
  replace("hosts", [element("table", {}, [
    row(["Host", "To ask", "Known", "robots.txt", ""], "th"),
    ...hosts.map((host) => row([host.host, count(host.todo), count(host.urls), robots(host.robots_status), state(host)])),
  ])]);
}

function chart() {
  const most = Math.max(1, ...speeds);
  const x = (n) => 600 - (speeds.length - 1 - n) * (600 / (HISTORY - 1));
  const points = speeds.map((speed, n) => `${x(n).toFixed(1)},${(66 - (speed / most) * 60).toFixed(1)}`);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  $("chart").replaceChildren(line);
  $("chart").setAttribute("aria-label", `Pages a second: now ${speeds.at(-1).toFixed(1)}, at most ${most.toFixed(1)}`);
}

function list({ crawls, total_pending }) {
  $("list").hidden = !crawls.length;
  put("total", `${count(total_pending)} addresses are before the crawls that run.`);
  replace("crawls", crawls.map((one) => {
    const open = element("button", { type: "button", onclick: () => show(one.id).catch((error) => complain(error.message)) }, one.start_url);
    if (one.id === shown) open.setAttribute("aria-current", "true");
    return element("li", {}, [
      element("span", { className: `chip ${one.status}` }, WORDS[one.status]), open,
      element("small", {}, `${count(one.pages)} pages, ${count(one.pending)} pending`),
    ]);
  }));
}

/** What a site wrote is text, and an address of its own only leads to the web. */
function link(url, text = url) {
  const safe = /^https?:\/\//i.test(url);
  return element(safe ? "a" : "span", safe ? { href: url, rel: "noopener noreferrer", target: "_blank" } : {}, text);
}

const count = (number) => number.toLocaleString("en");
const size = (bytes) => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

function put(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text; // else it is read aloud again
}

function replace(id, children, otherwise = "") {
  if ($(id).contains(document.activeElement) && $(id).children.length === children.length) return; // the keyboard is there
  $(id).replaceChildren(...(children.length ? children : [otherwise]));
}

function element(name, properties, content = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...[content].flat().map((one) => one ?? ""));
  return made;
}

// -- the page ---------------------------------------------------------------------------------------------------------

async function locked(button, work) {
  complain("");
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    asked = null;
    complain(error.message.charAt(0).toUpperCase() + error.message.slice(1));
  } finally {
    button.disabled = false;
  }
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  locked($("form").querySelector("button"), begin);
});
for (const button of document.querySelectorAll("[data-verb]")) {
  button.addEventListener("click", () => locked(button, () => steer(button.dataset.verb)));
}

shown = location.hash.slice(1) || null;
for (;;) {
  await look();
  await new Promise((resolve) => setTimeout(resolve, Number(document.documentElement.dataset.look ?? LOOK)));
}
