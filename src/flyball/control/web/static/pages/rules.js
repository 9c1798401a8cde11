// Rules: what fires each, when next, what waits, how the last run ended.
import { html } from "../lib.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Ago } from "../parts/time.js";
import { setQuery } from "../router.js";
import { useSignal } from "../signal.js";
import { problems, useRow } from "../store.js";
import { tone } from "../text.js";
import { Answered, useAsked } from "./asking.js";
import { Filter, holds } from "./filter.js";
import { UnitLink } from "./links.js";
import { Name, plain } from "./plain.js";
import { Table } from "./table.js";

export function Rules({ query: { q = "" } }) {
  const answer = useAsked("rules");
  return html`
    <h1>Rules</h1>
    <${Panel} title="Rules">
      <div class="tools">
        <${Filter} value=${q} label="Filter rules" onChange=${(text) => setQuery({ q: text })} />
      </div>
      <${Answered} answer=${answer}>
        ${({ rules }) => html`<${Table}
          label="Rules"
          head=${["rule", "state", "fired by", "next", "waiting", "last run", ""]}
          rows=${rules.filter((one) => holds(q, one.name, one.state, ...one.actions)).map(line)}
          empty=${rules.length ? "No rule fits the filter." : "No rule yet. `rules` in the settings makes one."}
        />`}
      <//>
    <//>
  `;
}

function line(one) {
  return {
    key: one.name,
    bad: one.held,
    cells: [
      html`<${UnitLink} name=${one.name} />`,
      html`<span class="state ${one.running ? "good" : tone(one.state)}">${one.running ? "running" : one.state}</span>`,
      html`<${Name} text=${one.triggers.map((trigger) => trigger.text).join("; ")} />`,
      one.next ? html`<${Ago} at=${one.next} />` : "",
      one.waiting,
      one.last_run
        ? html`<span class=${one.last_run.cause === "done" ? "good" : "bad"}>${one.last_run.cause}</span>${" "}
            <${Ago} at=${one.last_run.at} />`
        : "never ran",
      html`<${Orders} one=${one} />`,
    ],
  };
}

/** What holds it is let go by what its problem names first: a quarantine is reset, and not resumed. */
function Orders({ one: { name, held, running } }) {
  const row = useRow(name);
  const problem = useSignal(problems).find(({ id }) => id === row?.problem);
  const [offered] = problem?.actions ?? [];
  const order = held ? (offered ?? { verb: "resume", args: { units: [name] }, label: "Resume" }) : null;
  return html`<${Action} verb="trigger" args=${{ rule: name }} label="Fire" title=${`Fire ${plain(name)}`} />${" "}
    ${order
      ? html`<${Action} ...${order} units=${[name]} />`
      : html`<${Action} verb="pause" args=${{ units: [name] }} label="Pause" destructive=${running} />`}`;
}
