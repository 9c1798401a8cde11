// The journal, live: everything that happened and what was decided, the newest first.
import { look } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Panel } from "../parts/panel.js";
import { setQuery } from "../router.js";
import { useSignal } from "../signal.js";
import { connection } from "../store.js";
import { counted, exact } from "../text.js";
import { Fault } from "./asking.js";
import { Choice, Filter, holds } from "./filter.js";
import { UnitLink } from "./links.js";
import { Long, plain } from "./plain.js";
import { tail } from "./tail.js";

const KEPT_MAX = 2000; // entries in memory: some minutes of a busy fleet
const SHOWN_MAX = 200; // rows in the page
const FIRST = 200; // entries asked for at first
const DRAW_MS = 1000; // between two drawings, the first at once: a journal that runs is read in glances

const NOTHING = { entries: [], gap: null, error: null };

export function Journal({ query: { unit = "", kind = "", q = "" } }) {
  const [still, setStill] = useState(false);
  const { entries, gap, error } = useJournal(unit, still);
  const kinds = [...new Set(entries.map((one) => one.event))].sort();
  const found = entries.filter((one) => (!kind || one.event === kind) && holds(q, one.unit, one.text)).reverse();
  return html`
    <h1>Journal</h1>
    <${Panel} title=${unit ? `Journal of ${plain(unit)}` : "Journal"} aside=${still ? "stands still" : "live"}>
      <div class="tools">
        <${Filter} value=${q} label="Filter the journal" onChange=${(text) => setQuery({ q: text })} />
        <input
          aria-label="Only of this unit"
          placeholder="unit"
          value=${unit}
          onChange=${(event) => setQuery({ unit: event.target.value })}
        />
        <${Choice} label="kind" value=${kind} words=${kinds} onChange=${(word) => setQuery({ kind: word })} />
        <button aria-pressed=${still} onClick=${() => setStill(!still)}>${still ? "Go on" : "Stand still"}</button>
      </div>
      ${error ? html`<${Fault} error=${error} />` : null}
      ${gap ? html`<p class="busy" role="status">Entries ${gap.from} to ${gap.to} are not kept any more.</p>` : null}
      ${found.length === 0
        ? html`<p class="nothing">${entries.length ? "No entry fits the filter." : "Nothing happened yet."}</p>`
        : html`<ol class="journal" aria-label="Entries, newest first">
            ${found.slice(0, SHOWN_MAX).map((one) => html`<${Entry} key=${one.seq} entry=${one} />`)}
          </ol>`}
      ${found.length > SHOWN_MAX
        ? html`<p class="dim">and ${found.length - SHOWN_MAX} older ones: narrow the filter to see them.</p>`
        : null}
    <//>
  `;
}

/** Entries of a unit ("": of all), oldest first: the last ones, then what comes. Who stood still, or lost the daemon, goes
 * on where that was: nothing is left out in between. */
function useJournal(unit, still) {
  const [state, setState] = useState(NOTHING);
  const heard = useRef(null); // the number of the last entry that was heard, of any unit
  const live = useSignal(connection) === "live";
  useEffect(() => {
    heard.current = null;
    setState(NOTHING);
  }, [unit]);
  useEffect(() => {
    if (still || !live) return undefined;
    let over = false;
    let end = () => {};
    let fresh = [];
    let timer = 0;
    let drawn = -Infinity;
    const show = () => {
      timer = 0;
      drawn = performance.now();
      const entries = fresh.slice(-KEPT_MAX);
      fresh = [];
      setState((before) => ({ ...before, entries: merged(before.entries, entries) }));
    };
    const hear = (entry) => {
      heard.current = entry.seq;
      if (unit && entry.unit !== unit) return;
      fresh.push(entry);
      timer ||= setTimeout(show, Math.max(0, drawn + DRAW_MS - performance.now()));
    };
    const begin = async () => {
      try {
        if (heard.current === null) {
          const { events, last } = await look("events", { unit: unit || null, limit: FIRST });
          if (over) return;
          heard.current = last;
          setState({ ...NOTHING, entries: events });
        }
        end = tail(heard.current, hear, (gap) => setState((before) => ({ ...before, gap })));
      } catch (error) {
        if (!over) setState({ ...NOTHING, error });
      }
    };
    begin();
    return () => {
      over = true;
      clearTimeout(timer);
      end();
      show();
    };
  }, [unit, still, live]);
  return state;
}

/** Each entry once, by number, and not too many. */
function merged(before, fresh) {
  const last = before.at(-1)?.seq ?? 0;
  return [...before, ...fresh.filter((entry) => entry.seq > last)].slice(-KEPT_MAX);
}

/** Drawn once: a journal that runs moves its lines, and draws only the new ones. */
function Entry({ entry }) {
  const [open, setOpen] = useState(false);
  return useMemo(
    () => html`<li>
      <details onToggle=${(event) => setOpen(event.target.open)}>
        <summary>
          <time datetime=${new Date(entry.at * 1000).toISOString()}>${exact(entry.at)}</time>${" "}
          <span class="dim">${entry.seq}</span> <span class="event">${entry.event}</span>${" "}
          <${UnitLink} name=${entry.unit} />: <${Long} text=${entry.text} max=${300} />
        </summary>
        ${open ? html`<pre class="trace" tabindex="0">${contentText(entry)}</pre>` : null}
      </details>
    </li>`,
    [entry, open],
  );
}

function contentText({ verb, reasons, data }) {
  return plain(JSON.stringify({ verb, reasons, ...data }, null, 2));
}
