// The fake of outreach_async, in WebAssembly: Pyodide runs the same Python as `outreach-async serve`. index.d.ts documents it.
import { loadPyodide } from "pyodide";

const WHEELS = [
  new URL("./wheels/attrs.whl", import.meta.url),
  new URL("./wheels/msgspec.whl", import.meta.url),
  new URL("./wheels/outreach_async.whl", import.meta.url),
];
const NO_BODY = [204, 205, 304]; // with these, the constructor of Response refuses a body

let python; // one interpreter for every fake
const installed = new Map(); // fakes, and which addresses they answer
let replacement; // of the global fetch, while a fake is installed
let replaced;

async function read(url) {
  if (url.protocol === "file:") {
    const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:fs/promises");
    return new Uint8Array(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`${url}: expected a wheel, got status ${response.status}; serve the folder wheels beside index.js`);
  }
  return new Uint8Array(await response.arrayBuffer());
}

/** Returns the folder of Pyodide. Pyodide itself looks for it in a stack trace, which source maps change. */
async function findPyodide() {
  let module;
  try {
    module = import.meta.resolve("pyodide");
  } catch {
    return {}; // in a bundle, modules have no names
  }
  const folder = new URL(".", module).href;
  if (!folder.startsWith("file:")) return { indexURL: folder };
  const { fileURLToPath } = await import(/* webpackIgnore: true */ /* @vite-ignore */ "node:url");
  return { indexURL: fileURLToPath(folder) };
}

async function start(indexURL) {
  const options = indexURL === undefined ? await findPyodide() : { indexURL };
  const [pyodide, ...wheels] = await Promise.all([loadPyodide(options), ...WHEELS.map(read)]);
  for (const wheel of wheels) pyodide.unpackArchive(wheel, "wheel");
  return { pyodide, module: pyodide.pyimport("outreach_async.fake.control._fetch") };
}

/** Waits, and rejects as fetch does if the request is aborted meanwhile. */
function pause(seconds, signal) {
  signal.throwIfAborted();
  if (!seconds) return undefined;
  return new Promise((resolve, reject) => {
    // A fault may wait for ever. As with a connection that is open, Node.js does not end meanwhile.
    const timer = Number.isFinite(seconds) ? setTimeout(resolve, 1000 * seconds) : setInterval(() => {}, 2 ** 30);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

function streamOf(parts, lost, signal) {
  const rest = [...parts];
  const pull = async (controller) => {
    while (rest.length) {
      const [seconds, bytes] = rest.shift();
      await pause(seconds, signal);
      if (bytes.length) return controller.enqueue(bytes);
    }
    if (lost) throw new TypeError("terminated", { cause: new Error(lost) });
    controller.close();
  };
  return new ReadableStream({ pull }, { highWaterMark: 0 });
}

function addressOf(input) {
  try {
    return (input instanceof Request ? input.url : new URL(input, globalThis.location?.href).href).replace(/#.*/s, "");
  } catch {
    return ""; // the other fetch says what is wrong with it
  }
}

function dispatchTo(other) {
  return (input, init) => {
    const address = addressOf(input);
    const [fake] = [...installed].reverse().find(([, isOurs]) => isOurs(address)) ?? [];
    return fake ? fake.fetch(new Request(input, init)) : other(input, init);
  };
}

export async function createFake({ url = "http://outreach.localhost", indexURL, ...options } = {}) {
  const { protocol, host, pathname, search, hash } = URL.canParse(url) ? new URL(url) : { protocol: "", pathname: "" };
  const base = `${protocol}//${host}${pathname.replace(/\/+$/, "")}`;
  if (!/^https?:$/.test(protocol) || search || hash) {
    throw new TypeError(`url: expected http://HOST/PATH, got ${url}; pass the URL that your code calls`);
  }
  python ??= start(indexURL).catch((error) => {
    python = undefined; // so that the next call tries again
    throw error;
  });
  const { pyodide, module } = await python;
  const [answer, problem] = module.open_fake(base, pyodide.toPy(new TextEncoder().encode(JSON.stringify(options))));
  if (problem) throw new TypeError(problem);

  const isOurs = (address) => address === base || (address.startsWith(base) && /[/?]/.test(address[base.length]));

  const fake = {
    url: base,
    async fetch(input, init) {
      const request = new Request(typeof input === "string" && input.startsWith("/") ? base + input : input, init);
      const address = addressOf(request);
      if (!isOurs(address)) {
        throw new TypeError(`fetch: expected a URL below ${base}, got ${address}; send other requests with the global fetch`);
      }
      request.signal.throwIfAborted();
      const target = address.slice(base.length).replace(/^(?!\/)/, "/");
      const headers = pyodide.toPy({ ...Object.fromEntries(request.headers), host });
      const body = pyodide.toPy(new Uint8Array(await request.arrayBuffer()));
      const answered = answer(request.method, target, headers, body);
      const [status, fields, wait, parts, lost] = answered.toJs();
      for (const proxy of [headers, body, answered]) proxy.destroy();
      await pause(wait, request.signal);
      if (status === undefined) throw new TypeError("fetch failed", { cause: new Error(lost) });
      const content = NO_BODY.includes(status) || request.method === "HEAD" ? null : streamOf(parts, lost, request.signal);
      const response = new Response(content, { status, headers: fields });
      Object.defineProperty(response, "url", { value: address });
      return response;
    },
    install() {
      if (installed.size === 0) {
        replaced = globalThis.fetch;
        replacement = globalThis.fetch = dispatchTo(replaced);
      }
      installed.set(fake, isOurs);
    },
    restore() {
      // If someone else has replaced fetch since, theirs stays: it reaches the other fetch through ours.
      if (installed.delete(fake) && installed.size === 0 && globalThis.fetch === replacement) globalThis.fetch = replaced;
    },
  };
  return fake;
}
