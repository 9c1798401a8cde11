// How many are what. Each tile is a link to those units.
import { html } from "../lib.js";
import { href, place } from "../router.js";
import { useSignal } from "../signal.js";
import { totals } from "../store.js";
import { dollars, number } from "../text.js";

/** [field of the totals, label, its colour if it is not 0, filter]. The last two are shown only where there are any. */
const COUNTS = [
  ["running", "running", "good", "is:running"],
  ["cooling", "cooling down", "busy", "state:cooling"],
  ["quarantined", "quarantined", "bad", "state:quarantined"],
  ["over_budget", "over budget", "bad", "is:over"],
];
const RARE = [
  ["halted", "halted", "bad", "state:halted"],
  ["failed", "failed", "bad", "state:failed"],
  ["paused", "paused", "busy", "state:paused"],
];

export function Tiles() {
  const counts = useSignal(totals);
  const { query } = useSignal(place);
  const shown = [...COUNTS, ...RARE.filter(([field]) => counts[field] > 0)];
  const limit = counts.limit_day;
  const over = limit > 0 && counts.spent_day >= limit;
  return html`<section class="tiles" aria-label="Totals">
    ${shown.map(
      ([field, label, colour, filter]) => html`<a
        key=${field}
        class="tile"
        data-tile=${field}
        href=${href("", { ...query, q: query.q === filter ? "" : filter })}
        aria-current=${query.q === filter ? "true" : undefined}
      >
        <b class=${counts[field] ? colour : "dim"}>${number(counts[field])}</b>
        <span>${label}</span>
      </a>`,
    )}
    <div class="tile" data-tile="spent_day">
      <b class=${over ? "bad" : ""}>${dollars(counts.spent_day)}</b>
      <span>today${limit ? ` of ${dollars(limit)}` : ""}</span>
    </div>
    <a class="tile" data-tile="restarts_hour" href=${href("", { ...query, sort: "restarts" })}>
      <b>${number(counts.restarts_hour)}</b>
      <span>restarts / h</span>
    </a>
  </section>`;
}
