// What every policy says of a unit now: those that stand in its way first.
import { html } from "../../lib.js";
import { Ago } from "../../parts/time.js";
import { Table } from "../table.js";
import { Long } from "../plain.js";

const VERBS = ["proceed", "wait", "finish", "stop", "hold"]; // the strictest last
const TONES = { proceed: "good", wait: "busy", finish: "busy", stop: "bad", hold: "bad" };

export function Opinions({ opinions }) {
  const strictest = [...opinions].sort((one, other) => VERBS.indexOf(other.verb) - VERBS.indexOf(one.verb));
  const rows = strictest.flatMap(({ policy, by, verb, reasons }, place) =>
    (reasons.length ? reasons : [null]).map((reason, number) => ({
      key: `${place} ${number}`,
      cells: [
        policy,
        reason?.by ?? by,
        html`<span class=${TONES[verb] ?? ""}>${verb}</span>`,
        reason
          ? html`<${Long} text=${reason.text} max=${300} />${reason.until ? html` (<${Ago} at=${reason.until} />)` : null}`
          : html`<span class="dim">nothing against it</span>`,
        reason?.remedy ? html`<${Long} text=${reason.remedy} max=${300} />` : "",
      ],
    })),
  );
  return html`<${Table}
    label="Every policy's opinion"
    head=${["policy", "scope", "says", "because", "to do"]}
    rows=${rows}
    empty="No policy watches it."
  />`;
}
