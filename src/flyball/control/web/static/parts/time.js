// An instant as people read it: relative, with the exact time in its title. It stays true while the page is open.
import { html } from "../lib.js";
import { useSignal } from "../signal.js";
import { now } from "../store.js";
import { clock, exact, length, relative } from "../text.js";

function iso(at) {
  return new Date(at * 1000).toISOString();
}

/** `2 min ago`, `in 12 s`. */
export function Ago({ at }) {
  return html`<time datetime=${iso(at)} title=${exact(at)}>${relative(at, useSignal(now))}</time>`;
}

/** `14 min`: how long since, or until. */
export function Span({ at }) {
  return html`<time datetime=${iso(at)} title=${exact(at)}>${length(Math.abs(useSignal(now) - at))}</time>`;
}

/** `02:14`. */
export function Clock({ at }) {
  return html`<time datetime=${iso(at)} title=${exact(at)}>${clock(at, useSignal(now))}</time>`;
}
