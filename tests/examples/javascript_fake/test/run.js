// Prints the transcript of the fake that is served at a URL, or of one of the package: node run.js served|package URL
import { transcript, checkPackage } from "./transcript.js";

const [what, url] = process.argv.slice(2);
if (what === "served") {
  console.log(JSON.stringify({ lines: await transcript(fetch, url) }));
} else {
  const { createFake } = await import("outreach-async-fake");
  const started = await checkPackage(createFake);
  const fake = await createFake({ url });
  console.log(JSON.stringify({ lines: await transcript(fake.fetch, url), started }));
}
