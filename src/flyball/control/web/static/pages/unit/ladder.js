// The ladder: what each further failure of one kind costs, and where this unit stands on it. The last rung is the
// quarantine, which only a person lifts.
import { html } from "../../lib.js";
import { counted, length, short } from "../../text.js";
import { Action } from "../../parts/action.js";
import { Ago } from "../../parts/time.js";
import { Name } from "../plain.js";

export function Ladder({ ladder, flaps }) {
  const rungs = rungsOf(ladder);
  return html`
    ${ladder.failures.length === 0
      ? html`<p class="nothing">No failure is remembered. The next one would wait ${rungs[0]?.text ?? "no time"}.</p>`
      : ladder.failures.map((kind) => html`<${Kind} key=${kind.fingerprint} kind=${kind} rungs=${rungs} />`)}
    <p class="flaps">
      Flapping: <b>${flaps.state}</b>, ${counted(flaps.consecutive, "flap")} in a row,${" "}
      ${counted(flaps.in_window, "failing exit")} within its window.
    </p>
  `;
}

function Kind({ kind, rungs }) {
  const waits = rungs.filter((rung) => !rung.last).length;
  const here = kind.quarantined ? rungs.length : Math.min(kind.count, waits);
  return html`<div class="kind-of-failure">
    <p>
      <code title=${kind.fingerprint}>${short(kind.fingerprint)}</code>${" "}
      <span>
        <b><${Name} text=${kind.error || "failure"} /></b>, ${counted(kind.count, "time")}${kind.until && !kind.quarantined
          ? html`; waits, goes on <${Ago} at=${kind.until} />`
          : ""}
      </span>
      <${Action} ...${resetOf(kind.fingerprint)} />
    </p>
    <ol class="ladder" aria-label=${`Where ${short(kind.fingerprint)} stands`}>
      ${rungs.map(
        (rung, place) => html`<li
          key=${place}
          class="${place + 1 < here ? "passed" : place + 1 === here ? "here" : ""} ${rung.last ? "last" : ""}"
          aria-current=${place + 1 === here ? "step" : undefined}
        >
          <span>${rung.text}</span>
          ${place + 1 === here ? html`<small>you are here</small>` : ""}
        </li>`,
      )}
    </ol>
  </div>`;
}

/** What each failure costs, the first one first: the n-th wait, and instead of the last one the quarantine, if there is
 * one. Steps that follow each other and are the same are one where nothing ends them. */
export function rungsOf({ steps, max }) {
  const waits = Array.from({ length: max ? max - 1 : steps.findIndex((step) => step === steps.at(-1)) + 1 }, (_, place) => ({
    text: steps.length ? waitText(steps[Math.min(place, steps.length - 1)]) : "no wait",
    last: false,
  }));
  return max ? [...waits, { text: "quarantine", last: true }] : waits;
}

function waitText(seconds) {
  return seconds > 0 && seconds < 1 ? `${Math.round(seconds * 1000)} ms` : length(seconds);
}

export function resetOf(fingerprint) {
  return { verb: "reset", args: { fingerprint }, label: `Reset ${short(fingerprint)}`, destructive: false };
}
