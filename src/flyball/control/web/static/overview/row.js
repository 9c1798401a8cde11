// One unit in the table. It is drawn again when its own row changes, and not when another does.
import { html } from "../lib.js";
import { plain } from "../pages/plain.js";
import { Bar, State } from "../parts/state.js";
import { go, href } from "../router.js";
import { useRow } from "../store.js";

/** [id, label], in order. */
export const COLUMNS = [
  ["unit", "unit"],
  ["state", "state"],
  ["kind", "kind"],
  ["restarts", "restarts"],
  ["budget", "budget"],
  ["reason", "last reason"],
];

export function Row({ name, place, chosen }) {
  const row = useRow(name);
  if (row === null) return null;
  const open = (event) => {
    if (!event.target.closest("a, button") && !String(getSelection())) go("unit", name);
  };
  return html`<div
    role="row"
    class=${`row unit-row${row.often ? " often" : ""}`}
    aria-rowindex=${place}
    aria-current=${chosen ? "true" : undefined}
    data-unit=${name}
    onClick=${open}
  >
    <div role="cell" class="cell col-unit"><a href=${href("unit", name)} title=${plain(name)}><bdi>${plain(name)}</bdi></a></div>
    <div role="cell" class="cell col-state"><${State} row=${row} /></div>
    <div role="cell" class="cell col-kind" title=${row.host ? plain(`${row.kind} on ${row.host}`) : undefined}>
      ${row.kind}${row.host ? html` <span class="dim">on <bdi>${plain(row.host)}</bdi></span>` : null}
    </div>
    <div role="cell" class="cell col-restarts">
      <span class=${row.often ? "badge" : ""} title=${`${row.restarts_total} in all`}>
        ${row.restarts}${row.often ? " often" : ""}
      </span>
    </div>
    <div role="cell" class="cell col-budget"><${Bar} spent=${row.spent} limit=${row.limit} /></div>
    <div role="cell" class="cell col-reason" title=${plain(row.reason)}><bdi>${plain(lastReason(row))}</bdi></div>
  </div>`;
}

function lastReason(row) {
  if (row.questions) return row.questions === 1 ? "asks a question" : `asks ${row.questions} questions`;
  if (row.error) return row.failures > 1 ? `${row.error} ×${row.failures}` : row.error;
  return row.reason || "—";
}
