// What holds many units at once: the fleet's own state, a storm of failures, circuits that are open.
import { html } from "../lib.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Ago } from "../parts/time.js";
import { useSignal } from "../signal.js";
import { fleet } from "../store.js";
import { tone } from "../text.js";
import { Long, Name } from "./plain.js";
import { Table } from "./table.js";

export function Circuits() {
  const now = useSignal(fleet);
  if (now === null) return null;
  return html`<${Panel} title="Circuits and storm">
    <p class="fleet" role="status">
      The fleet is <span class="state ${tone(now.state)}">${now.state}</span>;${" "}
      ${now.storm ? html`<b class="bad">a storm of failures paused it</b>` : "no storm"}.
      ${now.storm || now.state === "paused"
        ? html` <${Action} verb="resume" args=${{}} label="Resume the fleet" destructive=${now.storm} text=${STORM} />`
        : null}
    </p>
    ${now.reasons.map(
      (one) => html`<p key=${`${one.policy} ${one.code}`} class="dim">
        <${Long} text=${one.text} /> ${one.remedy ? html`<${Long} text=${one.remedy} />` : null}
      </p>`,
    )}
    <${Table}
      label="Circuits that are not closed"
      head=${["circuit", "state", "tries again", ""]}
      rows=${now.breakers.map((one) => ({
        key: one.name,
        cells: [
          html`<${Name} text=${one.name} />`,
          html`<span class="state ${tone(one.state)}">${one.state}</span>`,
          one.until ? html`<${Ago} at=${one.until} />` : "with the next start",
          html`<${Action} verb="reset" args=${{ breaker: one.name }} label="Close" />`,
        ],
      }))}
      empty="Every circuit is closed."
    />
  <//>`;
}

const STORM = "Units start again; if what made them fail is still there, the storm comes back.";
