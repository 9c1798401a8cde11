// All that the page knows of the fleet, kept live by one stream. Frames are applied as they come and drawn at most once
// an animation frame, so that a storm of changes costs one drawing; who looks at one row is told of that row alone.
import { learnMe, look, me } from "./api.js";
import { useEffect, useState } from "./lib.js";
import { signal } from "./signal.js";

const SILENCE_MAX_MS = 12_000; // the server says something every 5 s: after two that did not come, it is gone
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 5_000; // a daemon that is back is seen within this
const DRAWN_MS = 30; // a flood of changes is drawn 30 times a second: more is not seen, and costs the reader's battery
const HIDDEN_MS = 1_000; // a tab that nobody sees draws nothing but its title
const REST_AFTER_MS = 30_000; // a browser has six connections for all tabs: one that nobody sees gives its own back
const REST_LOOK_MS = 10_000; // and looks so often whether something needs somebody

/** "connecting" until the first frame, then "live" or "gone". */
export const connection = signal("connecting");
/** When the server was last heard, in its own time. */
export const heard = signal(0);
/** The fleet as `status` tells it, the totals, and the problems: worst first. null: not known yet. */
export const fleet = signal(null);
export const totals = signal(null);
export const problems = signal([]);
/** Whether there was a first frame: then none of these is null any more. */
export const known = signal(false);
/** The present by the server's clock, in whole seconds; it ticks. */
export const now = signal(Math.floor(Date.now() / 1000));

/** The rows of all units, by name. Read it; nothing but a frame changes it. */
export const rows = new Map();

const rowSignals = new Map(); // only of rows that somebody looks at
const watchers = new Set();
let changed = new Set();
let everything = false;
let latest = {}; // of fleet, totals, problems: what is to be drawn
let scheduled = null; // how to take the next drawing back
let drawnAt = 0;
let epoch = "";
let offset = 0; // seconds that the server's clock is ahead of ours

/** One unit's row; null if there is none. The component is drawn again when it changes. */
export function useRow(name) {
  const [, draw] = useState(0);
  useEffect(() => {
    const source = rowSignals.get(name) ?? signal(rows.get(name) ?? null);
    rowSignals.set(name, source);
    const end = source.subscribe(() => draw((n) => n + 1));
    return () => {
      end();
      if (source.idle && rowSignals.get(name) === source) rowSignals.delete(name);
    };
  }, [name]);
  return rows.get(name) ?? null;
}

/** Have `tell(names, full)` called before each drawing with the units that changed; `full`: all of them, anew. */
export function watchRows(tell) {
  watchers.add(tell);
  return () => watchers.delete(tell);
}

/** The problem of that id; undefined if it is over. */
export function problemOf(id) {
  return id ? problems.value.find((problem) => problem.id === id) : undefined;
}

/** Whether orders can be given: the daemon is there. */
export function isLive() {
  return connection.value === "live";
}

// Frames.

function apply(frame) {
  if (!frame.full && frame.epoch !== epoch) return reopen(); // of a board that we never saw in full
  epoch = frame.epoch;
  if (frame.full) {
    rows.clear();
    changed.clear();
    everything = true;
  }
  for (const row of frame.units) {
    rows.set(row.name, row);
    changed.add(row.name);
  }
  for (const name of frame.gone) {
    rows.delete(name);
    changed.add(name);
  }
  for (const part of ["fleet", "totals", "problems"]) {
    if (frame[part] !== null && frame[part] !== undefined) latest[part] = frame[part];
  }
  hear(frame.at);
  schedule();
}

function schedule() {
  if (scheduled !== null) return;
  if (document.hidden) {
    const timer = setTimeout(draw, HIDDEN_MS);
    scheduled = () => clearTimeout(timer);
  } else {
    const frame = requestAnimationFrame(drawInTurn);
    scheduled = () => cancelAnimationFrame(frame);
  }
}

function drawInTurn(at) {
  scheduled = null;
  if (at - drawnAt < DRAWN_MS) return schedule();
  drawnAt = at;
  draw();
}

function draw() {
  scheduled = null;
  const [names, full, parts] = [changed, everything, latest];
  [changed, everything, latest] = [new Set(), false, {}];
  if (full) for (const [name, source] of rowSignals) source.value = rows.get(name) ?? null;
  else for (const name of names) if (rowSignals.has(name)) rowSignals.get(name).value = rows.get(name) ?? null;
  for (const tell of watchers) tell(names, full);
  if (parts.fleet) fleet.value = parts.fleet;
  if (parts.totals) totals.value = parts.totals;
  if (parts.problems) problems.value = parts.problems;
  known.value = totals.value !== null;
  connection.value = "live";
}

document.addEventListener("visibilitychange", () => {
  if (scheduled !== null) {
    scheduled();
    scheduled = null;
    schedule();
  }
  if (document.hidden) restSoon();
  else wake();
});

// Time.

function hear(at) {
  offset = at - Date.now() / 1000;
  heard.value = at;
  heardHere = performance.now();
}

/** The present by the server's clock, to the millisecond. */
export function present() {
  return Date.now() / 1000 + offset;
}

setInterval(() => {
  if (!document.hidden) now.value = Math.floor(present());
  if (stream !== null && performance.now() - heardHere > SILENCE_MAX_MS) lose();
}, 1000);

// The stream.

let stream = null;
let heardHere = 0;
let retry = RETRY_MIN_MS;
let version = "";
let again = null; // the next attempt
let resting = null; // what looks meanwhile
let restless = null; // what waits to rest

/** Begin to listen; goes on for as long as the page is open. */
export async function open() {
  let who;
  try {
    who = await learnMe();
  } catch {
    return lose(); // a login that is over reloads the page by itself
  }
  if (resting !== null || stream !== null) return;
  if (version && version !== who.version) return location.reload(); // the new daemon has a new page
  version = who.version;
  heardHere = performance.now();
  stream = new EventSource("/api/v1/board/stream");
  stream.addEventListener("board", (event) => {
    retry = RETRY_MIN_MS;
    apply(JSON.parse(event.data));
  });
  stream.addEventListener("alive", (event) => hear(JSON.parse(event.data).at));
  stream.addEventListener("error", lose);
}

function lose() {
  close();
  connection.value = "gone";
  clearTimeout(again);
  again = setTimeout(open, retry);
  retry = Math.min(retry * 2, RETRY_MAX_MS);
}

function close() {
  stream?.close();
  stream = null;
  scheduled?.();
  scheduled = null;
}

function reopen() {
  close();
  open();
}

// A tab that nobody sees.

function restSoon() {
  restless = setTimeout(() => {
    close();
    clearTimeout(again);
    resting = setInterval(glance, REST_LOOK_MS);
  }, REST_AFTER_MS);
}

function wake() {
  clearTimeout(restless);
  if (resting === null) return;
  clearInterval(resting);
  resting = null;
  retry = RETRY_MIN_MS;
  reopen();
}

async function glance() {
  try {
    const { problems: found } = await look("problems");
    const needs = found.filter((one) => !one.acknowledged && one.snoozed_until === null).length;
    if (resting === null) return;
    if (totals.value) totals.value = { ...totals.value, needs };
    connection.value = "live";
  } catch {
    if (resting !== null) connection.value = "gone";
  }
}

// The count of what needs somebody is in the title, where it is seen from another tab.

export function title() {
  const needs = totals.value?.needs ?? 0;
  const mark = connection.value === "gone" ? "(!) " : needs ? `(${needs}) ` : "";
  return `${mark}flyball${me.value ? ` · ${me.value.host}` : ""}`;
}
