// Answers OUTREACH_BASE_URL with a fake, in the whole process: node --import outreach-async-fake/global --test service.test.ts
import { createFake } from "./index.js";

const fake = await createFake({ url: process.env.OUTREACH_BASE_URL || undefined });
process.env.OUTREACH_BASE_URL = fake.url;
fake.install();
