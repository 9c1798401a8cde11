// How a page asks the daemon: once when it is opened, and again when the board says that something changed. Never by a
// clock, and never more than once a second: a unit that changes a hundred times a second costs one question.
import { look } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Empty } from "../parts/empty.js";
import { fleet, isLive, watchRows } from "../store.js";

const PACE_MS = 1000; // between two questions: an eye reads no faster
const NOTHING = { data: null, error: null };

/** Asks, and asks once more if it was told to meanwhile. `ask` gives a promise, `tell` hears {data, error}. */
export class Asker {
  constructor(ask, tell, pace = PACE_MS) {
    this.ask = ask;
    this.tell = tell;
    this.pace = pace;
    this.last = -Infinity;
    this.timer = 0;
    this.busy = false;
    this.wanted = false;
    this.closed = false;
  }

  /** Have it asked, as soon as it may be. */
  want() {
    if (this.closed || this.timer) return;
    if (this.busy) {
      this.wanted = true;
      return;
    }
    const due = this.last + this.pace - performance.now();
    if (due <= 0) {
      this.now();
      return;
    }
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.now();
    }, due);
  }

  async now() {
    this.busy = true;
    this.wanted = false;
    this.last = performance.now();
    let answer;
    try {
      answer = { data: await this.ask(), error: null };
    } catch (error) {
      answer = { data: null, error };
    }
    this.busy = false;
    if (this.closed) return;
    this.tell(answer);
    if (this.wanted) this.want();
  }

  /** Nothing is asked or told any more. */
  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }
}

/** The answer to a verb: {data, error, again}. It is asked anew when the board says that this unit changed; without one,
 * that anything did. Until the new answer is there the old one stays, also if the new one is an error. */
export function useAsked(verb, args = {}, unit = null) {
  const [answer, setAnswer] = useState(NOTHING);
  const asker = useRef(null);
  const key = JSON.stringify([verb, args]);
  useEffect(() => {
    const one = new Asker(
      () => look(verb, args),
      ({ data, error }) =>
        setAnswer((before) => {
          const old = before.key === key && !isGone(error) ? before.data : null;
          return { key, error, data: data ?? old };
        }),
    );
    asker.current = one;
    if (isLive()) one.want(); // else the board's first frame has it asked
    const ends = [
      watchRows((names, full) => (full || unit === null || names.has(unit)) && one.want()),
      fleet.subscribe(() => unit === null && one.want()),
      () => one.close(),
    ];
    return () => ends.forEach((end) => end());
  }, [key, unit]);
  const { data, error } = answer.key === key ? answer : NOTHING;
  return { data, error, again: () => asker.current.want() };
}

/** Whether what was asked for is not there, or not any more: then nothing old is shown of it. */
export function isGone(error) {
  return ["unknown_unit", "not_found"].includes(error?.code);
}

/** What stands where an answer is not there yet, or could not be had; `children` where it is. */
export function Answered({ answer, children }) {
  const { data, error } = answer;
  return html`
    ${error ? html`<${Fault} error=${error} />` : null}
    ${data ? children(data) : error ? null : html`<p class="nothing" aria-busy="true">…</p>`}
  `;
}

export function Fault({ error }) {
  return html`<${Empty} title=${error.message}>${error.remedy ? html`<p class="dim">${error.remedy}</p>` : null}<//>`;
}
