// The last exits of a unit as a strip, the newest at the right. Each says what it was when it is pointed at, touched or
// reached by keyboard.
import { html, useState } from "../../lib.js";
import { exact, length, short } from "../../text.js";
import { cut, plain } from "../plain.js";

const ERROR_MAX = 200; // characters of an error in a title: what a tip can show

export function Exits({ exits }) {
  const [chosen, setChosen] = useState(null);
  if (exits.length === 0) return html`<p class="nothing">No run of it has ended yet.</p>`;
  const shown = exits.find((one) => one.seq === chosen) ?? exits.at(-1);
  return html`
    <ol class="exits" aria-label="The last exits, oldest first">
      ${exits.map(
        (one) => html`<li key=${one.seq}>
          <button
            class="exit ${one.cause}"
            title=${exitText(one)}
            aria-label=${exitText(one)}
            aria-pressed=${one === shown}
            onClick=${() => setChosen(one.seq)}
          ></button>
        </li>`,
      )}
    </ol>
    <p class="exit-text" aria-live="polite"><span class="dot exit ${shown.cause}"></span> ${exitText(shown)}</p>
    <p class="legend" aria-hidden="true">
      ${[...new Set(exits.map((one) => one.cause))].map(
        (cause) => html`<span key=${cause}><span class="dot exit ${cause}"></span> ${cause}</span>`,
      )}
    </p>
  `;
}

/** `2026-11-16 02:14:07: error, exit 3, TypeError, 7f3a9c21, after 12 s; ended by budget`. */
export function exitText(one) {
  const how = [
    one.cause,
    one.code === null ? "" : `exit ${one.code}`,
    one.signal === null ? "" : `signal ${one.signal}`,
    cut(plain(one.error), ERROR_MAX),
    short(one.fingerprint ?? ""),
    one.lasted === null || one.lasted === undefined ? "" : `after ${length(one.lasted)}`,
  ];
  const by = one.policy ? `; ended by ${one.policy}` : "";
  return `${exact(one.at)}: ${[...new Set(how)].filter(Boolean).join(", ")}${by}`;
}
