// Tests of a program in TypeScript, against `outreach-async serve` at OUTREACH_BASE_URL. Each test has a fake of its own.
// Node.js 22.18 or later runs this file as it is: node --test service.test.ts. To check its types:
//
//   npm install --no-save openapi-typescript typescript @types/node
//   npx openapi-typescript $OUTREACH_BASE_URL/_fake/openapi.json -o service.d.ts
//   npx tsc --noEmit --strict --module nodenext --types node service.test.ts
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import type { components, paths } from "./service.d.ts";

type Schemas = components["schemas"];
type Faults = paths["/_fake/faults/script"]["post"]["requestBody"]["content"]["application/json"];

const world = {
  workspaces: [{ id: "space_1", campaigns: [{ id: "camp_1", name: "Spring", status: "live", steps: [{ templates: "A|B" }] }] }],
  owner_keys: { key_1: ["space_1"] },
};
let url: string;

async function send<T>(method: string, path: string, body?: object): Promise<T> {
  const response = await fetch(url + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

beforeEach(async () => {
  url = process.env.OUTREACH_BASE_URL!;
  ({ url } = await send<Schemas["SandboxResponse"]>("POST", "/_fake/sandboxes", { world }));
});

afterEach(() => send("DELETE", ""));

// The program under test: it creates a contact, and tries again once if the response is lost.
async function addToCampaign(email: string): Promise<Schemas["CreatedContact"]> {
  const contact: Schemas["CreateContact"] = {
    owner_key: "key_1",
    workspace: "space_1",
    email,
    upload_options: { duplicates: "update_missing_fields", strict_validation: false, campaign: "camp_1" },
  };
  return send<Schemas["CreatedContact"]>("POST", "/contacts", contact).catch((error) => {
    if (!(error instanceof TypeError)) throw error; // not a lost connection
    return send("POST", "/contacts", contact);
  });
}

test("a contact joins the campaign", async () => {
  assert.equal((await addToCampaign("ann@company.example")).status, "added");
  await send("POST", "/_fake/time/advance", { days: 1 });
  const { data } = await send<Schemas["CampaignPage"]>("GET", "/campaigns?workspace=space_1&page=1&display=10");
  assert.equal(data[0]?.contacts, 1);
});

test("a lost response creates no second contact", async () => {
  const faults: Faults = { operation: "create_contact", faults: [{ name: "commit_then", fault: { name: "reset" } }] };
  await send("POST", "/_fake/faults/script", faults);
  assert.equal((await addToCampaign("ann@company.example")).status, "updated_missing_fields");
  assert.deepEqual(await send<Schemas["FaultsResponse"]>("GET", "/_fake/faults"), { unfired: [] });
  const { counts } = await send<Schemas["RequestsResponse"]>("GET", "/_fake/requests");
  assert.deepEqual(counts, { create_contact: 2 });
});
