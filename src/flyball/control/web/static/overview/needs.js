// What needs a person: why, and the one safe thing to do, one click away. Worst and oldest first, as the server says.
import { html, useState } from "../lib.js";
import { Long, Name } from "../pages/plain.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Ago, Clock, Span } from "../parts/time.js";
import { useMay } from "../rights.js";
import { href } from "../router.js";
import { useSignal } from "../signal.js";
import { problems, totals } from "../store.js";
import { counted, short } from "../text.js";

const SHOWN = 10; // at first, and that many more with each click: a storm is not to push the units off the page
export const SNOOZE_SECONDS = 3600;
const TONES = { critical: "bad", warning: "busy", info: "dim" };

/** Whether somebody has said that they know. */
export function isQuiet(problem) {
  return problem.acknowledged || problem.snoozed_until !== null;
}

export function Needs() {
  const all = useSignal(problems);
  const [most, setMost] = useState(SHOWN);
  const needs = all.filter((problem) => !isQuiet(problem));
  const quiet = all.filter(isQuiet);
  const oldest = Math.min(...needs.map((problem) => problem.since ?? Infinity));
  return html`<${Panel}
    title=${html`Needs you (<${Count} least=${needs.length} />)`}
    kind="needs"
    live
    aside=${Number.isFinite(oldest) ? html`oldest <${Span} at=${oldest} />` : null}
  >
    ${needs.length
      ? html`<ul class="problems">
          ${needs.slice(0, most).map((problem) => html`<${Problem} key=${problem.id} problem=${problem} />`)}
        </ul>`
      : html`<p class="nothing">Nothing needs you.</p>`}
    ${needs.length > most
      ? html`<p class="more">
          <button onClick=${() => setMost(most + SHOWN)}>Show more (${needs.length - most})</button>
        </p>`
      : null}
    ${quiet.length
      ? html`<details class="quiet-ones">
          <summary>${counted(quiet.length, "problem")} acknowledged or snoozed</summary>
          <ul class="problems">
            ${quiet.slice(0, most).map((problem) => html`<${Problem} key=${problem.id} problem=${problem} />`)}
          </ul>
        </details>`
      : null}
  <//>`;
}

/** The list has at most 200 of them; the totals know how many there are. */
function Count({ least }) {
  return Math.max(useSignal(totals).needs, least);
}

function Problem({ problem }) {
  const quiet = isQuiet(problem);
  return html`<li class=${`problem ${problem.severity}`} data-problem=${problem.id}>
    <p class="problem-title">
      ${problem.unit ? html`<a href=${href("unit", problem.unit)}><b><${Name} text=${problem.unit} /></b></a> ` : null}
      <b class=${TONES[problem.severity]}><${Name} text=${titleOf(problem)} /></b>
      ${problem.error && problem.error !== problem.code
        ? html` · <span class=${TONES[problem.severity]}><${Name} text=${problem.error} max=${120} /></span>`
        : null}
      ${problem.fingerprint ? html` · fingerprint <code>${short(problem.fingerprint)}</code>` : null}
      ${problem.count > 1 ? ` · ${problem.count} times` : null}
      ${problem.since ? html` · <${Ago} at=${problem.since} />` : null}
    </p>
    <p class="dim"><${Long} text=${problem.text} max=${300} /></p>
    ${problem.remedy ? html`<p class="dim"><${Long} text=${problem.remedy} max=${300} /></p>` : null}
    ${quiet ? html`<p class="dim">${quietText(problem)}</p>` : null}
    <div class="buttons">
      ${problem.actions.map(
        (action, place) => html`<${Action}
          key=${`${action.verb} ${action.label}`}
          ...${action}
          primary=${place === 0}
        />`,
      )}
      ${quiet ? null : html`<${Quieten} problem=${problem} />`}
      ${problem.unit ? html`<a class="button" href=${href("unit", problem.unit)}>Why?</a>` : null}
    </div>
  </li>`;
}

/** The title without the unit's name, which stands before it as a link. */
function titleOf({ title, unit }) {
  return unit && title.startsWith(`${unit} `) ? title.slice(unit.length + 1) : title;
}

function quietText(problem) {
  const until = problem.snoozed_until;
  if (problem.acknowledged) return `Acknowledged${problem.by ? ` by ${problem.by}` : ""}.`;
  return html`Snoozed${problem.by ? ` by ${problem.by}` : ""} until <${Clock} at=${until} />, or until it gets worse.`;
}

function Quieten({ problem }) {
  const name = problem.unit || "the fleet";
  if (!useMay("acknowledge")) return null;
  return html`
    <${Action} verb="acknowledge" args=${{ problem: problem.id }} label="Ack" done=${`${name}: quiet until it gets worse`}
      title="You know of it: quiet until it gets worse, or is over." />
    <${Action} verb="snooze" args=${{ problem: problem.id, seconds: SNOOZE_SECONDS }} label="Snooze 1 h"
      done=${`${name}: quiet for an hour`} title="Quiet for an hour, or until it gets worse." />
  `;
}
