// A table of a few hundred rows: on a phone each row is a card whose cells say their column. What is more is counted,
// not shown: whoever looks for one row filters.
import { html } from "../lib.js";
import { counted } from "../text.js";
import { Long } from "./plain.js";

const ROWS_MAX = 300; // rows in the page: more than anybody reads, few enough to be drawn in a frame

/** `head` names the columns; `rows` are {key, cells, bad?}; `empty` is what is said where there is none; `left`: so many
 * were left out by the daemon. */
export function Table({ label, head, rows, empty, left = 0 }) {
  if (rows.length === 0) return html`<p class="nothing"><${Long} text=${empty} /></p>`;
  const more = Math.max(0, rows.length - ROWS_MAX) + left;
  return html`
    <table class="cards" aria-label=${label}>
      <thead>
        <tr>
          ${head.map((name) => html`<th key=${name} scope="col">${name || html`<span class="hidden">orders</span>`}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.slice(0, ROWS_MAX).map(
          ({ key, cells, bad }) => html`<tr key=${key} class=${bad ? "bad" : ""}>
            ${cells.map(
              (cell, place) => html`<td key=${head[place]} class=${cell === "" ? "none" : ""} data-label=${head[place]}>
                <div>${cell}</div>
              </td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
    ${more > 0 ? html`<p class="dim">and ${counted(more, "more row")}: narrow the filter to see them.</p>` : ""}
  `;
}
