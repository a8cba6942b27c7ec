// Submits claims and follows their jobs. No dependencies.
//
//   import { analyzeProduct, pollJobStatus } from "./client.js";
//   const answer = await analyzeProduct({ text: "…" });  // or url, or image_url
//   const job = answer.status === "cached" ? answer : await pollJobStatus(answer.job_id, answer.job_token, onUpdate);

const FINISHED = new Set(["done", "failed"]);
const PASSING = new Set([429, 500, 502, 503, 504]); // statuses after which the same request may succeed

const settings = { base: new URL("../functions/v1/", import.meta.url).href, login: null };

/**
 * `base`: where the routes are, if not beside this file. `login`: for a server that wants one. It has three functions:
 * `token()` returns the token that is there, or null; `signIn()` signs in anonymously; `renew()` renews an expired login.
 */
export function configure(given) {
  Object.assign(settings, given);
}

/** Have one of `{url}`, `{text}` and `{image_url}` checked: `status` is "cached", with the result, or "queued". */
export async function analyzeProduct(product) {
  const answer = await send("analyze_product", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(product),
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

/**
 * Look at a job every `intervalMs`, `maxAttempts` times at most, until it is done or has failed; `onUpdate` gets its
 * status each time. Resolves to the last status. Rejects with a TimeoutError after the last look (the job goes on), and
 * at once if the server refuses. A server that is away or busy costs a look.
 *
 * 30 looks are a minute: as long as a worker needs. Where only a cron job works, allow for two: `maxAttempts` 60.
 */
export async function pollJobStatus(jobId, jobToken, onUpdate, maxAttempts = 30, intervalMs = 2000) {
  const query = new URLSearchParams({ job_id: jobId, job_token: jobToken });
  for (let attempt = 1; ; attempt++) {
    const answer = await send(`job_status?${query}`, { cache: "no-store" }).catch((error) => {
      if (error instanceof TypeError) return null; // the network is away
      throw error;
    });
    if (answer?.ok) {
      const job = await answer.json();
      onUpdate?.(job);
      if (FINISHED.has(job.status)) return job;
    } else if (answer && !PASSING.has(answer.status)) {
      throw await refusal(answer);
    }
    if (attempt >= maxAttempts) {
      throw new DOMException("This takes longer than usual. It goes on: ask again later.", "TimeoutError");
    }
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

/** The score of a result, also of one that was kept under an earlier name. */
export function scoreOf(result) {
  return result.bunk_score ?? result.bs_score ?? result.bunkd_score;
}

async function send(route, options) {
  const { login } = settings;
  if (login && !login.token()) await login.signIn();
  const answer = await request(route, options);
  if (answer.status !== 401 || !login) return answer;
  await login.renew(); // once: a login that is refused when it is new stays refused
  return request(route, options);
}

function request(route, options) {
  const token = settings.login?.token();
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(new URL(route, settings.base), { ...options, headers });
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  return Object.assign(new Error(problem.error ?? `the server answered ${answer.status}`), { status: answer.status });
}
