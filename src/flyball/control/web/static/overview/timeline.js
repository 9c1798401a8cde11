// What happened last, from the journal. Asked anew when the board changes, at most every other second: a stream of its
// own would take one of the six connections that a browser has for all tabs.
import { look } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { Name } from "../pages/plain.js";
import { Panel } from "../parts/panel.js";
import { Clock } from "../parts/time.js";
import { href } from "../router.js";
import { useSignal } from "../signal.js";
import { connection, watchRows } from "../store.js";

const SHOWN = 12;
const ASKED = 40; // some are not for here: an exit that holds a unit is followed by a start that is refused for the same
// What people asked for is on the page of the audit, its effect is here; steps and signs of life are in the journal.
const KINDS = ["booted", "start", "resume", "exited", "asked", "answered", "held", "released", "acknowledged", "raised", "settled"];
const EVERY_MS = 2_000;
const TONES = { hold: "bad", stop: "bad", wait: "busy", finish: "dim" };

/** Whether a start was refused for what the exit before it said already. */
function isEcho(entry, before) {
  if (entry.event !== "start" || entry.verb === "proceed") return false;
  const last = before.findLast((other) => other.unit === entry.unit);
  return last?.event === "exited" && last.text.endsWith(entry.text.slice(entry.text.indexOf("; ")));
}

function told(events) {
  return events.filter((entry, place) => !isEcho(entry, events.slice(0, place))).slice(-SHOWN).reverse();
}

export function Timeline() {
  const live = useSignal(connection) === "live";
  const [entries, setEntries] = useState(null);
  useEffect(() => {
    if (!live) return undefined;
    let [over, timer, asked] = [false, null, 0];
    const ask = async () => {
      timer = null;
      asked = Date.now();
      const answer = await look("events", { limit: ASKED, kinds: KINDS }).catch(() => null);
      if (answer && !over) setEntries(told(answer.events));
    };
    const soon = () => {
      if (timer === null && !over) timer = setTimeout(ask, Math.max(0, asked + EVERY_MS - Date.now()));
    };
    const end = watchRows(soon);
    soon();
    return () => {
      over = true;
      clearTimeout(timer);
      end();
    };
  }, [live]);
  return html`<${Panel} title="Timeline">
    ${entries?.length
      ? html`<ol class="timeline">
          ${entries.map(
            (entry) => html`<li key=${entry.seq}>
              <span class="dim"><${Clock} at=${entry.at} /></span>${" "}
              ${entry.unit ? html`<a href=${href("unit", entry.unit)}><b><${Name} text=${entry.unit} max=${40} /></b></a>` : html`<b>fleet</b>`}${" "}
              <span class=${TONES[entry.verb] ?? ""}><${Name} text=${entry.text} max=${140} /></span>
            </li>`,
          )}
        </ol>`
      : html`<p class="nothing">${entries ? "Nothing happened yet." : "…"}</p>`}
  <//>`;
}
