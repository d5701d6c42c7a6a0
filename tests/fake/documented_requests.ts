// The requests that the guide of the control plane shows, as values of the types that openapi-typescript makes of the document.
import type { components, paths } from "./service.d.ts";

type Schemas = components["schemas"];
type Body<Operation> = Operation extends { requestBody?: { content: { "application/json": infer T } } } ? T : never;

export const requests: {
  world: Body<paths["/_fake/world"]["put"]>;
  faults: Body<paths["/_fake/faults"]["post"]>[];
  script: Body<paths["/_fake/faults/script"]["post"]>;
  behaviour: Body<paths["/_fake/behaviour"]["patch"]>;
  advance: Body<paths["/_fake/time/advance"]["post"]>;
  sandboxes: Schemas["SandboxBody"][];
} = {
  world: { workspaces: [{ id: "space_1", campaigns: [{ id: "camp_1" }] }] },
  faults: [
    { fault: { name: "latency", seconds: 2 }, operation: "list_steps", p: 0.1 },
    { fault: { name: "truncate", after_bytes: 5 }, containing: "bo@", times: 1 },
    { fault: { name: "slow_drip" } },
    { fault: { name: "wrong_length" } },
    { fault: { name: "commit_then", fault: { name: "reset" } } },
  ],
  script: { operation: "create_contact", faults: [{ name: "status", code: 503 }, { name: "ok" }] },
  behaviour: { preset: "strict", order: "newest", auth: "none", rate_limit: { limit: 2 } },
  advance: { days: 2, hours: 12 },
  sandboxes: [{}, { seed: 7, behaviour: { preset: "strict" }, expires_after: 60 }, { world: {}, behaviour: {} }],
};

export const read = (log: Schemas["RequestsResponse"], knobs: Schemas["BehaviourResponse"], world: Schemas["World"]) => [
  log.requests[0]?.target.length,
  log.requests[0]?.status?.toFixed(),
  knobs.past_end === "empty",
  world.workspaces?.[0]?.contacts?.[0]?.email,
];

// @ts-expect-error: a knob that does not exist
export const unknown: Schemas["BehaviourBody"] = { presets: "strict" };
