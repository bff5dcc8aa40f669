// A script as somebody else would write it: it starts a run, waits for its end, and reads why the first attempt failed.
// All types come from docs/openapi.yaml. The last line that it prints is what the test looks at.
import createClient from "openapi-fetch";
import { argv } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import type { components, paths } from "./toolflow.d.ts";

type Run = components["schemas"]["Run"];
type Problem = components["schemas"]["Problem"];

const [site, token] = argv.slice(2);
if (site === undefined || token === undefined) throw new Error("Usage: automate.ts SITE TOKEN");

const client = createClient<paths>({
  baseUrl: `${site}/api/v1`,
  headers: { Authorization: `Bearer ${token}` },
});

function explain(problem: Problem): string {
  const where = problem.errors?.map((error) => `${error.pointer ?? error.parameter}: ${error.detail}`) ?? [];
  return [problem.detail, ...where].join(" ");
}

async function readRun(id: number): Promise<Run> {
  const { data, error } = await client.GET("/runs/{run_id}", { params: { path: { run_id: id } } });
  if (error) throw new Error(explain(error));
  return data;
}

// What can't be done says what is wrong.
const refused = await client.POST("/runs", { body: { flow: "no-such-flow", input: {} } });
if (refused.error === undefined) throw new Error("A run of a flow that does not exist was started.");

const { data: started, error } = await client.POST("/runs", {
  body: { flow: "example", input: { topic: "tea" }, labels: ["from-typescript"] },
  params: { header: { "Idempotency-Key": crypto.randomUUID() } },
});
if (error) throw new Error(explain(error));

let run = await readRun(started.id);
while (run.status === "queued" || run.status === "running") {
  await sleep(200);
  run = await readRun(run.id);
}

const attempts = (run.steps ?? []).flatMap((step) => step.attempts ?? []);
const found = attempts.flatMap((attempt) => attempt.issues.map((issue) => `${attempt.number} ${issue.severity}: ${issue.description}`));
const listed = await client.GET("/runs", { params: { query: { label: "from-typescript", limit: 10 } } });
if (listed.error) throw new Error(explain(listed.error));

console.log(
  JSON.stringify({
    refused: refused.error.status,
    status: run.status,
    outcomes: attempts.map((attempt) => attempt.outcome),
    issues: found,
    listed: listed.data.items.map((item) => item.id === run.id),
  }),
);
