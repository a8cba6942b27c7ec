import { element, historyChart, ring, severityChip } from "./parts.js";

const $ = (id) => document.getElementById(id);
const CATEGORIES = { performance: "Performance", seo: "Search", accessibility: "Accessibility", security: "Security" };
const WORST = 10; // sites of the night that are not folded away
const MOST_AT_ONCE = 3; // findings of one kind that are not folded away
const PARTS = ["progress", "error", "result", "home"];
const interval = () => Number(document.documentElement.dataset.interval ?? 1000); // tests are in a hurry

let shown = 0; // which page: what still comes for one that was left is dropped

async function fetched(path, options) {
  const answer = await fetch(path, options);
  const document = await answer.json().catch(() => ({ error: `The server answers ${answer.status}.` }));
  if (!answer.ok) throw Object.assign(new Error(document.error), { final: answer.status < 500 });
  return document;
}

/** What the server says, however long it is away; null if this page was left meanwhile. */
async function awaited(path, page, away) {
  for (;;) {
    const document = await fetched(path).catch((error) => {
      if (error.final) throw error;
      if (page === shown) away();
    });
    if (page !== shown) return null;
    if (document) return document;
    await pause(interval());
    if (page !== shown) return null;
  }
}

const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

function only(...ids) {
  for (const part of PARTS) $(part).hidden = !ids.includes(part);
}

// -- one audit --------------------------------------------------------------------------------------------------------

async function follow(id, page) {
  for (;;) {
    const audit = await awaited(`/api/audits/${id}`, page, () => told("The server can't be reached. Trying again…"));
    if (audit === null) return;
    if ($("url").value !== audit.url && document.activeElement !== $("url")) $("url").value = audit.url;
    if (audit.status === "completed") return result(audit);
    if (audit.status === "failed") return failure("The audit failed.", audit.error_message, audit.error_code);
    progress(audit);
    await pause(interval());
  }
}

function told(state) {
  if ($("state").textContent !== state) $("state").textContent = state; // else it is read aloud again
  only("progress");
}

function progress({ status, job }) {
  const waits = job.attempt ? "Trying again soon…" : "Waiting for a worker…";
  told(status === "pending" ? waits : `${job.note ?? "Beginning"}…`);
  const counted = status === "processing" && job.total > 1;
  if (counted) Object.assign($("bar"), { max: job.total, value: job.done ?? 0 });
  else $("bar").removeAttribute("value");
  const attempt = job.attempt > 1 ? `attempt ${job.attempt} of ${job.max_attempts}` : "";
  const links = counted ? `${(job.done ?? 0).toLocaleString()} of ${job.total.toLocaleString()} links` : "";
  $("detail").textContent = [links, attempt, status === "pending" && job.error].filter(Boolean).join(" · ");
}

function failure(title, message, code = "") {
  $("failed").textContent = title;
  $("message").textContent = message;
  $("code").textContent = code ?? "";
  $("code").hidden = !code;
  only("error");
}

function result(audit) {
  const { facts, checks } = audit.details;
  const before = audit.previous;
  $("result").replaceChildren(
    element("section", { className: "card verdict" }, [
      ring(audit.score),
      element("div", {}, [
        element("h2", {}, new URL(audit.site).host),
        element("p", { className: "soft" }, audit.site),
        before ? delta(audit.score - before.score) : element("p", { className: "soft" }, "The first audit of this site"),
      ]),
    ]),
    element("section", { className: "card categories" }, Object.entries(audit.scores).map(([category, score]) =>
      element("div", {}, [
        element("span", {}, CATEGORIES[category]),
        element("b", { className: grade(score) }, score),
        meter(score, CATEGORIES[category]),
        before ? delta(score - (before.scores[category] ?? score), true) : "",
      ]))),
    ...(audit.history.length > 1 ? [part("History", historyChart(audit.history, audit.id))] : []),
    ...(before ? [part("Since the last audit", changes(audit))] : []),
    part(`Findings (${audit.findings.length})`, findings(audit.findings, checks)),
    part("Facts", definitions({
      "Pages read": facts.pages?.toLocaleString(),
      "Internal links": facts.links?.toLocaleString(),
      "Broken links": facts.broken_links?.toLocaleString(),
      "Reply": `${facts.status}, ${facts.bytes.toLocaleString()} bytes in ${facts.seconds} s`,
      "Largest part painted": facts.largest_paint === undefined ? null : `after ${facts.largest_paint.toFixed(2)} s`,
      "Seen with": facts.browser && `${facts.browser}, axe-core ${facts.axe}`,
      "Audited": new Date(audit.completed_at).toLocaleString(),
      "Took": `${((new Date(audit.completed_at) - new Date(audit.processing_started_at)) / 1000).toFixed(1)} s`,
    })),
    element("details", { className: "card" }, [
      element("summary", {}, `All ${checks.length} checks and their weights`),
      weights(checks),
    ]),
    element("p", { className: "soft links" }, [
      element("a", { href: `/api/audits/${audit.id}` }, "All of it as JSON"),
      facts.broken_links ? element("a", { href: `/api/audits/${audit.id}/broken-links` }, "Every broken link") : "",
    ]),
  );
  only("result");
  $("result").focus({ preventScroll: true });
}

const part = (title, ...body) => element("section", { className: "card" }, [element("h3", {}, title), ...body]);

const grade = (score) => (score >= 90 ? "good" : score >= 70 ? "fair" : score >= 50 ? "poor" : "bad");

function delta(points, short = false) {
  const sign = points > 0 ? "▲ " : points < 0 ? "▼ " : "";
  const text = points ? `${sign}${Math.abs(points)}` : "±0";
  const kind = points > 0 ? "good" : points < 0 ? "bad" : "soft";
  return element("p", { className: `delta ${kind}` }, short ? text : `${text} since the last audit`);
}

function meter(value, label) {
  const made = element("progress", { max: 100, value, className: grade(value) });
  made.setAttribute("aria-label", label);
  return made;
}

function changes({ compared, previous }) {
  const list = (title, kind, items) => items.length
    ? [element("details", { open: items.length <= 5 }, [
      element("summary", { className: kind }, `${items.length} ${title}`),
      element("ul", {}, items.map((one) =>
        element("li", {}, [`${one.text} `, one.element ? element("code", {}, one.element) : ""]))),
    ])]
    : [];
  const found = [...list("fixed", "good", compared.fixed), ...list("new", "bad", compared.new)];
  return element("div", { className: "changes" }, [
    ...(found.length ? found : [element("p", {}, "Nothing has changed.")]),
    element("a", { href: `/audits/${previous.id}` }, `The audit of ${new Date(previous.completed_at).toLocaleString()}`),
  ]);
}

function findings(found, checks) {
  const about = Object.fromEntries(checks.map((check) => [check.check, check]));
  if (!found.length) return element("p", {}, "Nothing is wrong.");
  const groups = Object.values(Object.groupBy(found, (one) => `${one.check} ${one.severity}`));
  return element("ul", { className: "findings" }, groups.map((group) => {
    const most = group.length > MOST_AT_ONCE + 1 ? MOST_AT_ONCE : group.length;
    const [{ check, severity, category }, more] = [group[0], group.slice(most)];
    return element("li", {}, [
      severityChip(severity),
      element("div", {}, [
        ...texts(group.slice(0, most)),
        more.length ? element("details", {}, [element("summary", {}, `${more.length} more`), ...texts(more)]) : "",
        element("p", { className: "soft" }, `${CATEGORIES[category]} · ${about[check].why}`),
      ]),
    ]);
  }));
}

/** What was found of one kind. The same text stands once above all of its elements. */
const texts = (group) => Object.entries(Object.groupBy(group, (one) => one.text)).flatMap(([text, same]) => [
  element("strong", {}, text),
  ...same.filter((one) => one.element).map((one) => element("code", {}, one.element)),
]);

const definitions = (pairs) => element("dl", {}, Object.entries(pairs).filter(([, value]) => value).flatMap(
  ([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

const weights = (checks) => element("table", {}, [
  element("thead", {}, element("tr", {}, ["Check", "Weight", "Reached"].map((name) => element("th", { scope: "col" }, name)))),
  element("tbody", {}, checks.map((check) => element("tr", {}, [
    element("td", {}, [element("strong", {}, check.title), element("p", { className: "soft" }, CATEGORIES[check.category])]),
    element("td", {}, check.weight),
    element("td", {}, check.applies ? (check.weight * check.points).toLocaleString() : "does not apply"),
  ]))),
]);

// -- all audits -------------------------------------------------------------------------------------------------------

async function home(page) {
  for (let before = "";;) {
    const recent = await awaited("/api/audits", page, () => $("home").hidden && told("The server can't be reached. Trying again…"));
    if (recent === null) return;
    if (before !== JSON.stringify(recent)) overview(recent); // what somebody reads stays as it is
    before = JSON.stringify(recent);
    await pause(5 * interval());
  }
}

function overview({ audits, nightly, queue, errors }) {
  const unfolded = $("home").querySelector("details")?.open ?? false;
  $("home").replaceChildren(
    element("section", { className: "card queue" }, Object.entries({
      Waiting: queue.pending, "At work": queue.processing, Done: queue.completed, Failed: queue.failed,
      Stalled: queue.stale, "95 % take at most": queue.p95_seconds === null ? "–" : `${queue.p95_seconds} s`,
    }).map(([name, value]) => element("div", {}, [element("b", {}, value), element("span", {}, name)]))),
    ...(errors.length ? [part("Why audits failed", element("ul", { className: "errors" }, errors.map((one) =>
      element("li", {}, [element("b", {}, `${one.audits} × ${one.code}`), element("p", { className: "soft" }, one.message)]))))]
      : []),
    ...(nightly.length ? [part(
      `Every night (${nightly.length})`,
      listed(nightly.slice(0, WORST)),
      nightly.length > WORST
        ? element("details", { open: unfolded }, [element("summary", {}, `The other ${nightly.length - WORST}`), listed(nightly.slice(WORST))])
        : "",
    )] : []),
    part("Audits", audits.length ? listed(audits) : element("p", { className: "soft" }, "There is none yet.")),
    element("p", { className: "links" }, element("a", { href: "/jobs/" }, "The dashboard of the queue, for operators")),
  );
  only("home");
}

const listed = (audits) => element("ul", { className: "audits" }, audits.map((audit) => {
  const more = audit.score === null || (audit.score_before ?? null) === null ? 0 : audit.score - audit.score_before;
  return element("li", {}, [
    element("a", { href: `/audits/${audit.id}` }, audit.url),
    audit.score === null
      ? element("span", { className: `chip ${audit.status === "failed" ? "critical" : "info"}` }, audit.status)
      : element("b", { className: grade(audit.score) }, audit.score),
    element("small", {}, new Date(audit.created_at ?? audit.completed_at).toLocaleString()),
    more ? delta(more, true) : "",
  ]);
}));

// -- the page ---------------------------------------------------------------------------------------------------------

async function show() {
  const page = ++shown;
  const [, id] = location.pathname.match(/^\/audits\/([^/]+)$/) ?? [];
  try {
    await (id ? follow(id, page) : home(page));
  } catch (error) {
    if (page === shown) failure("That did not work.", error.message);
  }
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = $("form").querySelector("button");
  button.disabled = true;
  try {
    const body = JSON.stringify({ url: $("url").value.trim() });
    const { id } = await fetched("/api/audits", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    history.pushState(null, "", `/audits/${id}`);
    show();
  } catch (error) {
    shown++;
    failure("That did not work.", error.message);
  } finally {
    button.disabled = false;
  }
});
addEventListener("popstate", show);
show();
