// A script as somebody else would write it: it starts a run, waits for its end, and reads why the first attempt failed.
// Then it takes its runs out as a file, runs them again and thinks better of it, sends lost webhooks again, and changes
// how the flow is run. All types come from the OpenAPI document. The last line that it prints is what the test looks at.
import createClient from "openapi-fetch";
import { argv } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import type { components, paths } from "./toolflow.d.ts";

type Run = components["schemas"]["Run"];
type BulkAction = components["schemas"]["WholeBulkAction"];
type Filters = NonNullable<components["schemas"]["NewBulkAction"]["filters"]>;
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

// All of its runs, as a file: a document a line.
const file = await client.GET("/runs/export", {
  params: { query: { label: "from-typescript", format: "jsonl", attempts: "all" } },
  parseAs: "text",
});
if (file.error) throw new Error(explain(file.error));
const exported = file.data.split("\n").filter(Boolean).map((line) => JSON.parse(line) as Run);

// What is done to many: request it and follow it.
async function doToAll(kind: "cancel" | "run_again", filters: Filters): Promise<BulkAction> {
  const begun = await client.POST("/bulk-actions", { body: { kind, filters } });
  if (begun.error) throw new Error(explain(begun.error));
  let action: BulkAction = begun.data;
  while (action.status === "waiting" || action.status === "working") {
    await sleep(200);
    const read = await client.GET("/bulk-actions/{action_id}", { params: { path: { action_id: action.id } } });
    if (read.error) throw new Error(explain(read.error));
    action = read.data;
  }
  return action;
}

const again = await doToAll("run_again", { label: "from-typescript", status: ["succeeded"] });
const cancelled = await doToAll("cancel", { label: again.label ?? "", status: ["queued"] });

// Webhooks that never arrived are sent again.
const lost = await client.GET("/webhook-deliveries", { params: { query: { status: ["failed"] } } });
if (lost.error) throw new Error(explain(lost.error));
const sent: string[] = [];
for (const delivery of lost.data.items) {
  const answer = await client.POST("/webhook-deliveries/{delivery_id}/send-again", {
    params: { path: { delivery_id: delivery.id } },
  });
  if (answer.error) throw new Error(explain(answer.error));
  sent.push(answer.data.status);
}

// Settings are changed only as long as they are what was read.
const flow = { path: { name: "example" } };
const settings = await client.GET("/flows/{name}/settings", { params: flow });
if (settings.error) throw new Error(explain(settings.error));
const tag = settings.response.headers.get("ETag") ?? "";
async function keepFor(days: number): Promise<number> {
  const params = { ...flow, header: { "If-Match": tag } };
  const { response } = await client.PATCH("/flows/{name}/settings", { params, body: { keep_days: days } });
  return response.status;
}
const changed = [await keepFor(30), await keepFor(60)];

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
    exported: exported.map((item) => [item.id === run.id, item.steps?.length]),
    again: again.done,
    cancelled: cancelled.done,
    sent,
    changed,
  }),
);
