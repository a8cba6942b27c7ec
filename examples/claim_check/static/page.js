import { analyzeProduct, pollJobStatus, scoreOf } from "./client.js";

const $ = (id) => document.getElementById(id);
const FOLLOWED = "claim-check"; // in sessionStorage: the job that this tab follows, as long as it does
const STATES = { queued: "Waiting in queue...", running: "Processing analysis..." };
const HINTS = {
  text: "Paste the advert or the description here.",
  url: "https://shop.example/product",
  image_url: "https://shop.example/advert.jpg",
};
const SUBSCORES = {
  HE: "Human evidence",
  AT: "Authenticity and transparency",
  MO: "Marketing overclaim",
  PV: "Price versus value",
};
const VERDICTS = [
  [2.5, "good", "Holds up"],
  [5, "fair", "Mostly fair"],
  [7.5, "poor", "Doubtful"],
  [10, "bad", "Mostly bunk"],
];

// -- asking -----------------------------------------------------------------------------------------------------------

async function check(kind, value) {
  await shown(async () => {
    progress("Sending...");
    const answer = await analyzeProduct({ [kind]: value });
    if (answer.status === "cached") return { ...answer, status: "done", cached: true };
    sessionStorage.setItem(FOLLOWED, JSON.stringify([answer.job_id, answer.job_token]));
    return follow(answer.job_id, answer.job_token);
  });
}

async function follow(jobId, jobToken) {
  progress(STATES.queued);
  const { attempts, interval } = document.documentElement.dataset; // for tests
  return pollJobStatus(
    jobId, jobToken,
    (job) => STATES[job.status] && progress(STATES[job.status], job.attempts > 1 ? `Attempt ${job.attempts}` : ""),
    attempts && Number(attempts), interval && Number(interval),
  );
}

/** Run this, with the form locked, and show what comes of it. */
async function shown(work) {
  only("progress");
  $("form").querySelector("button").disabled = true;
  try {
    const job = await work();
    if (job.status === "done") result(job);
    else failure(job.last_error_message ?? "The analysis failed.", job.last_error_code);
  } catch (error) {
    failure(error.message);
  } finally {
    sessionStorage.removeItem(FOLLOWED);
    $("form").querySelector("button").disabled = false;
  }
}

// -- showing ----------------------------------------------------------------------------------------------------------

function only(id) {
  for (const part of ["progress", "error", "result"]) $(part).hidden = part !== id;
}

function progress(state, detail = "") {
  if ($("state").textContent !== state) $("state").textContent = state; // else it is read aloud again
  $("detail").textContent = detail;
}

function failure(message, code = "") {
  $("message").textContent = message.charAt(0).toUpperCase() + message.slice(1);
  $("code").textContent = code ?? "";
  $("code").hidden = !code;
  only("error");
}

function result(job) {
  const found = job.result_json;
  const score = Number(scoreOf(found) ?? job.bs_score);
  const [, kind, verdict] = VERDICTS.find(([most]) => score <= most) ?? VERDICTS.at(-1);
  const { subscores, evidence_bullets, red_flags, key_claims, citations } = found;
  $("result").replaceChildren(
    element("div", { className: `verdict ${kind}` }, [
      element("div", { className: "score" }, [element("b", {}, score.toFixed(1)), element("span", {}, " of 10")]),
      element("div", {}, [
        element("h2", {}, verdict),
        meter(score, "Bunk score"),
        element("small", {}, "0 is honest, 10 is bunk"),
      ]),
    ]),
    element("p", { className: "summary" }, found.summary),
    ...part("What it promises", key_claims, claims),
    ...part("Evidence", evidence_bullets, list),
    ...part("Red flags", red_flags, list),
    ...part("Scores", subscores && Object.entries(subscores), scores),
    ...part("Sources", citations, sources),
    element("footer", {}, [job.model_used && `Judged by ${job.model_used}`, job.cached && "from an earlier check"]
      .filter(Boolean).join(", ")),
  );
  only("result");
  $("result").focus({ preventScroll: true });
}

function part(title, items, body) {
  return items?.length ? [element("section", {}, [element("h3", {}, title), body(items)])] : [];
}

const list = (items) => element("ul", {}, items.map((text) => element("li", {}, text)));

const claims = (items) => element("ul", { className: "claims" }, items.map(({ claim, support_level, why }) =>
  element("li", {}, [
    element("span", { className: `chip ${String(support_level).toLowerCase()}` }, support_level),
    element("div", {}, [element("strong", {}, claim), element("p", {}, why)]),
  ])));

const scores = (items) => element("dl", {}, items.flatMap(([name, value]) => [
  element("dt", {}, SUBSCORES[name] ?? name),
  element("dd", {}, [meter(Number(value), SUBSCORES[name] ?? name), element("span", {}, Number(value).toFixed(1))]),
]));

const sources = (items) => element("ol", {}, items.map(({ url, title, snippet }) =>
  element("li", {}, [link(url, title), snippet ? element("p", {}, snippet) : ""])));

/** What a model wrote is text, and an address of its own only leads to the web. */
function link(url, title) {
  const safe = /^https?:\/\//i.test(url);
  return element(safe ? "a" : "span", safe ? { href: url, rel: "noopener noreferrer", target: "_blank" } : {}, title || url);
}

function meter(value, label) {
  const made = element("progress", { max: 10, value });
  made.setAttribute("aria-label", label);
  return made;
}

function element(name, properties, content = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...[content].flat().map((one) => one ?? ""));
  return made;
}

// -- the page ---------------------------------------------------------------------------------------------------------

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  check(new FormData($("form")).get("kind"), $("input").value.trim());
});
$("form").addEventListener("change", () => {
  const kind = new FormData($("form")).get("kind");
  $("input").placeholder = HINTS[kind];
  $("input").rows = kind === "text" ? 4 : 1;
});
$("form").dispatchEvent(new Event("change"));

const followed = sessionStorage.getItem(FOLLOWED); // the page was reloaded meanwhile
if (followed) shown(() => follow(...JSON.parse(followed)));
