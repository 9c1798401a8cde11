// The journal as it grows. The browser opens the stream again by itself, from the last number that it heard: nothing is
// missed, and what is gone from the journal is said.

/** Listen to what comes after entry `after`; `hear(entry)` for each, `gap({from, to})` for what is gone. What is returned
 * ends it. */
export function tail(after, hear, gap = () => {}) {
  const stream = new EventSource(`/api/v1/journal/stream?after=${after}`);
  stream.addEventListener("entry", (event) => hear(JSON.parse(event.data)));
  stream.addEventListener("gap", (event) => gap(JSON.parse(event.data)));
  return () => stream.close();
}
