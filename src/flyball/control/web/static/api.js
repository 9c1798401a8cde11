// The one way to the server: looks by GET, orders by POST with the CSRF header. Errors keep code, text and remedy.
import { signal } from "./signal.js";

const BASE = "/api/v1/";
const ANSWER_MAX_MS = 15_000; // an order waits for a unit to be told; what takes longer does not come

/** Who looks: {who, role, csrf, host, version, pid, started}; null until it is known. */
export const me = signal(null);

/** What a verb could not do, as the server says it. */
export class ApiError extends Error {
  constructor(status, { code = "", text = "", remedy = "" } = {}) {
    super(text || `the server answered ${status}`);
    this.status = status;
    this.code = code;
    this.remedy = remedy;
  }
}

/** Ask: `look("why", {unit: "a"})`. Lists are repeated, and what is null is left out. */
export function look(verb, args = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args)) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  const text = query.toString();
  return answer(`${BASE}${verb}${text ? `?${text}` : ""}`, { method: "GET" });
}

/** Order: `order("pause", {units: ["a"]})`. */
export function order(verb, args = {}) {
  return answer(BASE + verb, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Flyball-CSRF": me.value?.csrf ?? "" },
    body: JSON.stringify(args),
  });
}

/** Learn anew who we are to the server. */
export async function learnMe() {
  me.value = await look("me");
  return me.value;
}

export async function logout() {
  await answer("/logout", { method: "POST", headers: { "X-Flyball-CSRF": me.value?.csrf ?? "" } });
  location.reload();
}

async function answer(address, options) {
  let response;
  try {
    response = await fetch(address, {
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(ANSWER_MAX_MS),
      ...options,
      headers: { Accept: "application/json", ...options.headers },
    });
  } catch (error) {
    const text = error.name === "TimeoutError" ? "the daemon did not answer in time" : "the daemon does not answer";
    throw unreachable(text);
  }
  if (response.status === 401) {
    location.reload(); // what comes then is the login form
    throw new ApiError(401, { code: "unauthorized", text: "the login is over", remedy: "Log in again." });
  }
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, body?.error);
  if (body === null) throw unreachable("the daemon broke off in the middle of its answer");
  return body;
}

function unreachable(text) {
  return new ApiError(0, { code: "unreachable", text, remedy: "Look whether it runs: `flyball status`." });
}
