// What a fake answers to many requests, as JSON. Node.js and a page run this with the package, Node.js also with the served fake.

const world = {
  workspaces: [
    {
      id: "space_1",
      custom_fields: ["Plan"],
      mailboxes: [{ id: "mailbox_1", email: "ada@north.example" }, { id: "mailbox_2", email: "bo@north.example" }],
      campaigns: [{ id: "camp_1", name: "Spring é", status: "live", mailboxes: ["mailbox_1"], steps: ["A|B", "A"] }],
    },
  ],
  owner_keys: { key_1: ["space_1"] },
};
const FAULTS = [
  { name: "ok" },
  { name: "status", code: 503, headers: { "x-more": "1" } },
  { name: "status", code: 429, retry_after: 2 },
  { name: "status", code: 204 },
  { name: "drift", path: "data.status", change: "archived" },
  { name: "latency", seconds: 0.01 },
  { name: "slow_drip", bytes: 100, every: 0.001 },
  { name: "wrong_length", short_by: 3 },
  { name: "hang" },
  { name: "refuse" },
  { name: "reset" },
  { name: "close" },
  { name: "truncate", after_bytes: 5 },
  { name: "reset_mid_body", after: 5 },
  ...["garbage", "long_header", "bad_chunk", "no_final_chunk", "wrong_encoding"].map((kind) => ({ name: "malformed", kind })),
];
const SHOWN = ["content-type", "content-length", "date", "x-request-id", "x-fake-hint", "x-more", "retry-after", "allow"];
const CAMPAIGNS = "/campaigns?workspace=space_1&page=1&display=10";

export async function transcript(fetch, url) {
  const lines = [];
  const hide = (text) => text.replaceAll(url, "URL").replace(/(sandboxes\/|server_)[0-9a-f]+/g, "$1ID");

  async function send(method, path, body, options = {}) {
    const line = { sent: hide(`${method} ${path}`) };
    lines.push(line);
    let response;
    try {
      const content = body === undefined || body instanceof Uint8Array ? body : JSON.stringify(body);
      const headers = { "content-type": "application/json", ...options.headers };
      response = await fetch(path.startsWith("/") ? url + path : path, { method, body: content, ...options, headers });
    } catch (error) {
      line.failed = error.name;
      return undefined;
    }
    line.status = response.status;
    line.headers = SHOWN.map((name) => hide(response.headers.get(name) ?? "")).join("|");
    // What is made before the fake has its date from the computer.
    if (line.headers.includes("server_ID")) line.headers = line.headers.replace(/\w+, [^|]* GMT/, "DATE");
    try {
      const text = await response.text();
      line.body = hide(text);
      return text && JSON.parse(text);
    } catch (error) {
      if (line.body !== undefined) return undefined; // no JSON
      line.broken = error.name;
      line.headers = line.headers.replace(/\|\d+/, "|"); // a body in chunks has no length
      return undefined;
    }
  }
  const create = (email, { base = "", duplicates = "skip", ...fields } = {}) => {
    const upload_options = { duplicates, strict_validation: false, campaign: "camp_1" };
    return send("POST", `${base}/contacts`, { owner_key: "key_1", workspace: "space_1", email, upload_options, ...fields });
  };

  await send("PUT", "/_fake/world", world);
  await send("GET", "/_fake");
  const mailboxes = "/mailboxes?workspace=space_1&page=1&display=1";
  const found = [CAMPAIGNS, mailboxes, "/campaigns/camp_1/steps", "/workspaces/space_1/all-fields"];
  const missing = ["/campaigns", "/campaigns/camp_%C3%A9/steps", "/nothing?a=b", "/_fake/nothing", "/"];
  for (const path of [...found, ...missing]) await send("GET", path);
  await send("DELETE", "/contacts");
  await send("HEAD", CAMPAIGNS);

  await create("ann@company.example", { custom: { custom_1: "gold" } });
  for (const duplicates of ["skip", "overwrite", "update_missing_fields"]) {
    await create("Ann@company.example", { first_name: duplicates, duplicates });
  }
  await create("not an address");
  await create("bo@company.example", { owner_key: "key_2" });
  await send("POST", "/contacts", new TextEncoder().encode("{"));
  await send("POST", "/contacts", new TextEncoder().encode("{}"), { headers: { "content-encoding": "br" } });
  await send("POST", "/contacts", new TextEncoder().encode("{}"), { headers: { "content-encoding": "gzip" } });

  await send("POST", "/_fake/faults/script", { operation: "list_campaigns", faults: FAULTS });
  for (const fault of FAULTS) {
    lines.push(fault);
    await send("GET", CAMPAIGNS, undefined, fault.name === "hang" ? { signal: AbortSignal.timeout(100) } : {});
  }
  const lost = { name: "commit_then", fault: { name: "reset" } };
  await send("POST", "/_fake/faults/script", { operation: "create_contact", faults: [lost] });
  await create("cy@company.example");
  await create("cy@company.example");
  await send("POST", "/_fake/faults", { fault: { name: "truncate" } });

  await send("POST", "/_fake/time/advance", { days: 2 });
  await send("GET", "/campaigns/camp_1/steps");
  await send("PATCH", "/_fake/behaviour", { preset: "strict" });
  await send("PATCH", "/_fake/behaviour", { presets: "strict" });
  await create("dee@company.example");
  await send("GET", "/_fake/requests?last=3");

  const [one, two] = [await send("POST", "/_fake/sandboxes", { world }), await send("POST", "/_fake/sandboxes", { seed: 7 })];
  await create("ann@company.example", { base: one.url });
  for (const each of [one, two]) await send("GET", `${each.url}/_fake/world`);
  await send("DELETE", one.url);
  await send("GET", `${one.url}/_fake/world`);
  await send("POST", "/_fake/reset");
  await send("GET", "/_fake/world");
  return lines;
}

/** Checks what is the package's own, and returns how long it took to start, in milliseconds. */
export async function checkPackage(createFake) {
  const same = (found, expected) => {
    const [got, wanted] = [JSON.stringify(found), JSON.stringify(expected)];
    if (got !== wanted) throw new Error(`expected ${wanted}, got ${got}`);
  };
  const json = async (sent) => (await sent).json();
  const begin = performance.now();
  const first = await createFake({ url: "https://api.example/v1/", world, seed: 3 });
  const answered = await first.fetch("/_fake/time");
  const started = performance.now() - begin;
  same([first.url, answered.url], ["https://api.example/v1", "https://api.example/v1/_fake/time"]);
  same(await answered.json(), { now: "2026-01-01T00:00:00Z", unix: 1767225600 });

  const second = await createFake({ world });
  await second.fetch("/_fake/time/advance", { method: "POST", body: '{"days": 1}' });
  const fault = '{"fault": {"name": "reset"}, "operation": "list_campaigns"}';
  await second.fetch("/_fake/faults", { method: "POST", body: fault });
  same((await first.fetch(CAMPAIGNS)).status, 200);
  same((await json(first.fetch("/_fake/time"))).now, "2026-01-01T00:00:00Z");
  same((await json(second.fetch("/_fake/time"))).now, "2026-01-02T00:00:00Z");

  const describe = (error) => `${error.name}: ${error.message}${error.cause ? `: ${error.cause.message}` : ""}`;
  const failed = (promise) => promise.then(() => "resolved", describe);
  const named = async (promise) => (await failed(promise)).split(": ").slice(0, 2).join(": ");
  same(await failed(second.fetch(CAMPAIGNS)), "TypeError: fetch failed: connection reset before a response was received");
  same(
    await failed(first.fetch("https://api.example/v10/campaigns")),
    "TypeError: fetch: expected a URL below https://api.example/v1, got https://api.example/v10/campaigns; " +
      "send other requests with the global fetch",
  );
  same(await failed(first.fetch(CAMPAIGNS, { signal: AbortSignal.abort(new Error("stopped")) })), "Error: stopped");
  same(await named(createFake({ worlds: {} })), "TypeError: worlds");
  same(await named(createFake({ behaviour: { order: "up" } })), "TypeError: Behaviour.order");
  same(await named(createFake({ world: { workspaces: [{ id: "s" }] } })), "TypeError: world.workspaces[0]");
  same(await named(createFake({ url: "/v1" })), "TypeError: url");
  same(await named(createFake({ url: "ftp://a" })), "TypeError: url");

  const asked = [];
  const real = (globalThis.fetch = async (input) => asked.push(String(input)) && new Response("elsewhere"));
  first.install();
  second.install();
  same((await fetch("https://api.example/v1" + CAMPAIGNS)).status, 200);
  same((await fetch(new Request(`${second.url}/_fake/time`))).status, 200);
  same((await fetch(new URL("https://api.example/v1?a=b"))).status, 404);
  first.restore();
  same(await (await fetch("https://api.example/v1/campaigns")).text(), "elsewhere");
  second.restore();
  second.restore();
  same([asked, globalThis.fetch === real], [["https://api.example/v1/campaigns"], true]);
  return started;
}
