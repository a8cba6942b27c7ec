// Graphile Worker: adapter.py's commands and tally.py's files, in its language. hrtime is CLOCK_MONOTONIC, too.
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { BENCH_URL: url, BENCH_RUN: place, BENCH_TUNING: tuning = "default", BENCH_HOME: home } = process.env;
const require = createRequire(`${home}/package.json`);
const { Logger, makeWorkerUtils, run, runMigrations } = await import(
  pathToFileURL(require.resolve("graphile-worker")).href
);

const PAD = "x".repeat(70);
const CHUNK = 1000;
const PRODUCERS = 4;
const WARM_UP = 5;
const TUNED = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const SETTINGS = { default: {}, throughput: TUNED, latency: TUNED };

const logger = new Logger(() => () => {});
const now = () => process.hrtime.bigint();
const seconds = (since) => Number(now() - since) / 1e9;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Counted in memory and written once in a turn of the event loop: Node can't map a file, and must not pay a system
// call for each job where Python pays none.
const record = Buffer.alloc(24);
let file, waitsFile, count = 0n, first, last, waits = "", flushing = false;

function started(asked) {
  last = now();
  first ??= last;
  count++;
  if (asked) waits += `${last - BigInt(asked)}\n`;
  if (flushing) return;
  flushing = true;
  setImmediate(flush);
}

function flush() {
  flushing = false;
  file ??= fs.openSync(`${place}/count-${process.pid}`, "w");
  record.writeBigInt64LE(count, 0);
  record.writeBigInt64LE(first, 8);
  record.writeBigInt64LE(last, 16);
  fs.writeSync(file, record, 0, 24, 0);
  if (!waits) return;
  waitsFile ??= fs.openSync(`${place}/waits-${process.pid}`, "a");
  fs.writeSync(waitsFile, waits);
  waits = "";
}

const taskList = {
  noop: async (payload) => started(payload.asked_ns),
  long: async (payload) => {
    fs.appendFileSync(`${place}/long`, `${now()}\n`);
    await sleep(payload.seconds * 1000);
  },
};

const commands = {
  async one(utils, jobs) {
    await warmUp(utils);
    const began = now();
    for (let i = 0; i < jobs; i++) await enqueue(utils, 0);
    return { jobs: jobs + WARM_UP, rate: jobs / seconds(began) };
  },
  async bulk(utils, jobs) {
    const began = now();
    for (let done = 0; done < jobs; done += CHUNK) {
      const length = Math.min(CHUNK, jobs - done);
      await utils.addJobs(Array.from({ length }, () => ({ identifier: "noop", payload: { asked_ns: 0, pad: PAD } })));
    }
    return { jobs, rate: jobs / seconds(began) };
  },
  async paced(utils, jobs) {
    await warmUp(utils);
    for (let i = 0; i < jobs; i++) {
      await sleep(100 + Math.random() * 100);
      await enqueue(utils, Number(now()));
    }
    return { jobs: jobs + WARM_UP };
  },
  async steady(utils, rate, length) {
    await warmUp(utils);
    const began = now();
    let sent = 0;
    async function producer(k) {
      for (let due = k / rate; due < length; due += PRODUCERS / rate) {
        await sleep(Math.max(0, (due - seconds(began)) * 1000));
        await enqueue(utils, Number(now()));
        sent++;
      }
    }
    await Promise.all(Array.from({ length: PRODUCERS }, (_, k) => producer(k)));
    return { jobs: sent + WARM_UP, rate: sent / seconds(began) };
  },
  async long(utils, length) {
    await utils.addJob("long", { seconds: length });
    return { jobs: 1 };
  },
};

const enqueue = (utils, asked_ns) => utils.addJob("noop", { asked_ns, pad: PAD });

async function warmUp(utils) {
  for (let i = 0; i < WARM_UP; i++) await enqueue(utils, 0);
}

const [command, ...given] = process.argv.slice(2);
if (command === "prepare") {
  await runMigrations({ connectionString: url, logger });
} else if (command === "work") {
  const runner = await run({ preset: { worker: { connectionString: url, logger, ...SETTINGS[tuning] } }, taskList });
  await runner.promise;
} else {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  console.log(JSON.stringify(await commands[command](utils, ...given.map(Number))));
  await utils.release();
}
process.exit(0);
