// Where we are is in the address and nowhere else: `#/unit/coder-3?tab=log`. So a link, a reload and the back button
// show the same.
import { signal } from "./signal.js";

/** {page: "unit", parts: ["coder-3"], query: {tab: "log"}}; the overview's page is "". */
export const place = signal(read());

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...parts] = path.split("/").map(decoded);
  return { page, parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // an address that somebody typed
  }
}

/** The address of a page: `href("unit", "a b", {tab: "log"})`. What is empty is left out of the query. */
export function href(page, ...rest) {
  const query = rest.length && typeof rest.at(-1) === "object" ? rest.pop() : {};
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const path = [page, ...rest].map(encodeURIComponent).join("/");
  return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}

export function go(...where) {
  location.hash = href(...where);
}

/** Change the query of this page; without an entry in the history, for what changes with every key. */
export function setQuery(changes) {
  const { page, parts, query } = place.value;
  history.replaceState(null, "", href(page, ...parts, { ...query, ...changes }));
  place.value = read();
}

window.addEventListener("hashchange", () => {
  place.value = read();
});
