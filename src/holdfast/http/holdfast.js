// Follows a job from a web page: pollJobStatus(…), and <holdfast-job job-id="…" token="…"></holdfast-job>.
// No dependencies, no inline styles or scripts: it works under a strict content security policy. Load it as a module:
//   <script type="module" src="/jobs/v1/holdfast.js"></script>

const FINISHED = new Set(["succeeded", "failed", "cancelled"]);
const PASSING = new Set([429, 502, 503, 504]); // statuses after which the same request may succeed
const FIRST_EVENT_MS = 10_000; // a proxy that holds back events has sent none by then
// Browsers have six connections at most to a server that speaks HTTP/1.1, for all of its pages, and each stream of events
// occupies one. Further elements poll, and so do those of pages that nobody sees.
const STREAMS = 3;

const HERE = new URL("./", import.meta.url).href; // the routes beside this file

function routeOf(jobId, api) {
  const base = new URL(api.endsWith("/") ? api : `${api}/`, globalThis.document?.baseURI ?? HERE);
  return new URL(`jobs/${encodeURIComponent(jobId)}`, base);
}

/**
 * Look at a job every `intervalMs` until it has finished, `maxAttempts` times at most. `onUpdate` gets its status each
 * time. Resolves to the last status: `state` is "succeeded" (see `result`), "failed" or "cancelled" (see `error`).
 * Rejects with a TimeoutError after the last attempt, and with an Error that has `code` and `status` if the server
 * refuses. A server that is away or busy costs an attempt; `Retry-After` counts if it is longer than the interval.
 *
 * Options: `api`, where the API is if not beside this file ("https://example.org/jobs/v1/"); `signal`, to stop; `fetch`,
 * to send requests another way.
 */
export async function pollJobStatus(jobId, jobToken, onUpdate, maxAttempts = 30, intervalMs = 2000, options = {}) {
  const { api = HERE, signal, fetch = globalThis.fetch } = options;
  const url = routeOf(jobId, api);
  const headers = jobToken ? { Authorization: `Bearer ${jobToken}` } : {};
  for (let attempt = 1; ; attempt++) {
    let pause = intervalMs;
    const answer = await fetch(url, { headers, cache: "no-store", signal }).catch((error) => {
      if (signal?.aborted) throw error;
      return null; // the network is away
    });
    if (answer?.ok) {
      const job = await answer.json();
      onUpdate?.(job);
      if (FINISHED.has(job.state)) return job;
    } else if (answer && !PASSING.has(answer.status)) {
      throw await refusal(answer);
    } else {
      pause = Math.max(pause, 1000 * (Number(answer?.headers.get("Retry-After")) || 0));
    }
    if (attempt >= maxAttempts) {
      throw new DOMException(`job ${jobId} has not finished after ${attempt} looks; it goes on`, "TimeoutError");
    }
    await sleep(pause, signal);
  }
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  const error = new Error(problem.detail ?? `the server answered ${answer.status}`);
  return Object.assign(error, { code: problem.code ?? null, status: answer.status });
}

function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/**
 * <holdfast-job job-id token [api] [label]> shows the state of a job and how far it is. It listens to the job's events,
 * and polls where they don't arrive. It fires `update` with each status, then `result` with what the job returned, or
 * `failure` with an error: `event.detail`; and `output` with what an attempt wrote, if the token may see it. The
 * attribute `state` and the parts `bar` and `state` are for styles.
 */
export class HoldfastJob extends (globalThis.HTMLElement ?? class {}) {
  static observedAttributes = ["job-id", "token", "api"];

  /** What is shown for a state; replace them for another language. */
  static texts = {
    queued: "Waiting in queue…",
    running: "Running…",
    paused: "Paused",
    succeeded: "Done",
    failed: "Failed.",
    cancelled: "Cancelled",
  };

  static #streams = 0; // of this page

  #bar = document.createElement("progress");
  #text = document.createElement("span");
  #stop = null; // aborts what follows the job now
  #over = false;
  #seen = () => this.#over || this.#follow();

  constructor() {
    super();
    this.#bar.part = "bar";
    this.#bar.max = 1;
    this.#text.part = "state";
    this.#text.setAttribute("role", "status");
    this.#text.setAttribute("aria-live", "polite");
    this.attachShadow({ mode: "open" }).append(this.#bar, " ", this.#text);
  }

  connectedCallback() {
    this.#bar.setAttribute("aria-label", this.getAttribute("label") ?? "Progress of the job");
    document.addEventListener("visibilitychange", this.#seen);
    this.#follow();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#seen);
    this.#stop?.abort();
  }

  attributeChangedCallback(name, before, now) {
    if (this.isConnected && this.#stop && before !== now) this.#follow();
  }

  #follow() {
    this.#stop?.abort();
    this.#stop = new AbortController();
    this.#over = false;
    const { signal } = this.#stop;
    // Attributes that are set one after the other are one change.
    queueMicrotask(() => {
      if (signal.aborted || !this.getAttribute("job-id")) return;
      if (document.hidden || HoldfastJob.#streams >= STREAMS) this.#poll(signal);
      else this.#listen(signal);
    });
  }

  #listen(signal) {
    const url = routeOf(this.getAttribute("job-id"), this.#api);
    url.pathname += "/events";
    if (this.getAttribute("token")) url.searchParams.set("token", this.getAttribute("token"));
    const source = new EventSource(url);
    HoldfastJob.#streams++;
    let [open, heard] = [true, false];
    const close = () => {
      source.close();
      clearTimeout(timer);
      HoldfastJob.#streams -= open;
      open = false;
    };
    const fall = () => {
      close();
      if (!signal.aborted) this.#poll(signal);
    };
    const timer = setTimeout(fall, FIRST_EVENT_MS);
    signal.addEventListener("abort", close, { once: true });
    source.addEventListener("status", (event) => {
      heard = true;
      clearTimeout(timer);
      const job = JSON.parse(event.data);
      if (FINISHED.has(job.state)) close();
      this.#show(job);
    });
    source.addEventListener("output", (event) => this.#tell("output", JSON.parse(event.data)));
    // The browser itself reconnects after a stream that worked.
    source.onerror = () => {
      if (!heard || source.readyState === EventSource.CLOSED) fall();
    };
  }

  async #poll(signal) {
    const [id, token] = [this.getAttribute("job-id"), this.getAttribute("token")];
    try {
      await pollJobStatus(id, token, (job) => this.#show(job), Infinity, 2000, { api: this.#api, signal });
    } catch (error) {
      if (signal.aborted) return;
      this.#over = true;
      this.#text.textContent = error.message;
      this.#tell("failure", error);
    }
  }

  get #api() {
    return this.getAttribute("api") ?? HERE;
  }

  #show(job) {
    const { state, progress, error } = job;
    const more = { running: progress?.note, failed: error?.message }[state];
    const text = (HoldfastJob.texts[state] ?? state) + (more ? ` ${more}` : "");
    if (this.#text.textContent !== text) this.#text.textContent = text; // else it would be read aloud again
    const done = state === "succeeded" ? 1 : progress?.fraction;
    if (done == null) this.#bar.removeAttribute("value");
    else this.#bar.value = done;
    this.#bar.hidden = state === "failed" || state === "cancelled";
    this.setAttribute("state", state);
    this.#over = FINISHED.has(state);
    this.#tell("update", job);
    if (state === "succeeded") this.#tell("result", job.result);
    else if (this.#over) this.#tell("failure", Object.assign(new Error(text), { code: error?.code ?? null }));
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

if (globalThis.customElements && !customElements.get("holdfast-job")) customElements.define("holdfast-job", HoldfastJob);
