/** What a new fake holds. Everything is optional: by default it is empty, and its time is 2026-01-01T00:00:00Z. */
export interface FakeOptions {
  /** The URL that your code calls, such as `https://api.example/v1`; by default `http://outreach.localhost`. Nothing is sent. */
  url?: string;
  /** Seed of generated values. Equal seeds and equal calls give equal bytes. By default 0. */
  seed?: number;
  /** A world file as an object, as for `PUT /_fake/world`. Values that it omits are generated. */
  world?: Record<string, unknown>;
  /** Knobs of the behaviour, as for `PATCH /_fake/behaviour`. */
  behaviour?: Record<string, unknown>;
  /** Where a web page loads the files of Pyodide from, if not from beside its module. Only the first fake of a page reads it. */
  indexURL?: string;
}

export interface Fake {
  /** The URL of the fake, without a slash at the end. Its control plane is at `${url}/_fake`. */
  readonly url: string;
  /**
   * Answers a request to the service or to the control plane as the served fake does. `input` may be a path, such as
   * `/_fake/time`. A fault that loses the response rejects with a TypeError, and a fault that breaks the body rejects when the
   * body is read; `cause` says why. `hang` waits until the signal aborts.
   */
  fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Answers what is sent to `url` with the global `fetch`, until `restore`. Requests to other URLs are sent as before. */
  install(): void;
  restore(): void;
}

/**
 * Creates a fake that shares nothing with others. The first call starts Python; later ones use the same interpreter.
 *
 * @throws TypeError - An option is invalid; the message names it and the remedy.
 */
export function createFake(options?: FakeOptions): Promise<Fake>;
