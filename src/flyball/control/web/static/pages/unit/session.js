// A piece of work that can be paused and resumed: how far it is, what is kept of it, and what became of its runs.
import { look } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Action } from "../../parts/action.js";
import { sayError } from "../../parts/notices.js";
import { Panel } from "../../parts/panel.js";
import { Bar } from "../../parts/state.js";
import { Ago } from "../../parts/time.js";
import { useSignal } from "../../signal.js";
import { connection } from "../../store.js";
import { counted, dollars, length, tone } from "../../text.js";
import { Long, Name, plain } from "../plain.js";
import { Table } from "../table.js";

export function Session({ session, story }) {
  const { resumes, steps, rounds, budget, deadline, pause } = session;
  const facts = [
    ["status", html`<span class="state ${tone(session.status)}">${session.status.replace("_", " ")}</span>`],
    ["resumes", resumes && `${resumes.used} of ${resumes.max}`],
    ["steps", steps && `${steps.used} of ${steps.max}`],
    ["rounds", rounds && roundsText(rounds)],
    ["budget", budget && html`${dollars(budget.spent)} of ${dollars(budget.limit)} <${Bar} ...${budget} />`],
    ["time", deadline && `${length(deadline.lasted)} of ${length(deadline.limit)}`],
    ["paused", pause && html`${pause.reason}; <${Until} at=${pause.resume_at} />`],
    ["ended by", session.stop_reason],
    ["failed for", session.failure_reason],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<${Panel} title="Session" aside=${resumes ? `resumes ${resumes.used} of ${resumes.max}` : null}>
    <dl class="facts">
      ${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    <h3>Checkpoints</h3>
    <${Checkpoints} session=${session} />
    ${story ? html`<${Story} story=${story} />` : null}
  <//>`;
}

function Until({ at }) {
  return at ? html`goes on <${Ago} at=${at} />` : "until a person resumes it";
}

function roundsText({ reached, max, convergence, agreement }) {
  const readings = [
    convergence === null ? "" : `convergence ${convergence.toFixed(2)}`,
    agreement === null ? "" : `agreement ${agreement.toFixed(2)}`,
  ].filter(Boolean);
  return [`${reached} of ${max}`, ...readings].join(", ");
}

function Checkpoints({ session }) {
  const [shown, setShown] = useState(null);
  const live = useSignal(connection) === "live";
  const show = async (id) => {
    try {
      setShown((await look("session", { unit: session.id, checkpoint: id })).checkpoint);
    } catch (error) {
      sayError(error);
    }
  };
  const free = session.status !== "running" && session.kind !== "call";
  const rows = [...session.checkpoints].reverse().map((one) => ({
    key: one.id,
    cells: [
      one.id,
      html`<${Name} text=${one.stage} />`,
      html`<${Ago} at=${one.at} />`,
      counted(one.bytes, "byte"),
      html`${shown?.id === one.id
          ? html`<button aria-expanded="true" onClick=${() => setShown(null)}>Hide</button>`
          : html`<button aria-expanded="false" disabled=${!live} onClick=${() => show(one.id)}>Show</button>`}
        ${free
          ? html` <${Action} verb="resume" args=${{ units: [session.id], checkpoint: one.id }} label="Resume from here" />`
          : null}`,
    ],
  }));
  return html`
    <${Table}
      label="Checkpoints, newest first"
      head=${["checkpoint", "stage", "kept", "size", ""]}
      rows=${rows}
      empty="No checkpoint is kept: a resume would begin anew."
    />
    ${shown ? html`<pre class="trace" tabindex="0" aria-label="Checkpoint ${shown.id}">${contentText(shown)}</pre>` : null}
  `;
}

function contentText({ form, content }) {
  return form === "json" ? plain(JSON.stringify(content, null, 2)) : plain(content);
}

/** What each layer saw, where the time went, and what can be done. */
function Story({ story: { layers, times, causes, ways_on: ways } }) {
  return html`
    ${layers.length
      ? html`<h3>Layers</h3>
          <ol class="layers">
            ${layers.map(
              (one) => html`<li key=${one.layer} value=${one.layer} class=${one.fired ? "bad" : ""}>
                <b>${one.name}</b>: <${Long} text=${one.text} max=${200} />${one.fired ? " (this one ended it)" : ""}
              </li>`,
            )}
          </ol>`
      : null}
    ${times.length
      ? html`<h3>Where the time went</h3>
          <${Table}
            label="Steps, the longest first"
            head=${["step", "times", "in all", "longest", "spent"]}
            rows=${times.map((one, place) => ({
              key: place,
              cells: [
                html`<${Name} text=${one.pattern} />`,
                one.times,
                length(one.seconds),
                length(one.longest),
                dollars(one.spent),
              ],
            }))}
            empty=""
          />`
      : null}
    ${[["What to look at", causes], ["What can be done", ways]].map(([title, texts]) =>
      texts.length
        ? html`<h3>${title}</h3>
            <ul>${texts.map((text) => html`<li key=${text}><${Long} text=${text} max=${300} /></li>`)}</ul>`
        : null,
    )}
  `;
}
