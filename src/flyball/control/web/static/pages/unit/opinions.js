// What every policy says of a unit now: those that stand in its way with their reasons, the others by name.
import { html } from "../../lib.js";
import { Ago } from "../../parts/time.js";
import { Table } from "../table.js";
import { Long } from "../plain.js";

const VERBS = ["proceed", "wait", "finish", "stop", "hold"]; // the strictest last
const TONES = { proceed: "good", wait: "busy", finish: "busy", stop: "bad", hold: "bad" };

export function Opinions({ opinions }) {
  const [against, content] = [opinions.filter(hasReasons), opinions.filter((one) => !hasReasons(one))];
  const strictest = against.sort((one, other) => VERBS.indexOf(other.verb) - VERBS.indexOf(one.verb));
  const rows = strictest.flatMap(({ policy, by, verb, reasons }, place) =>
    reasons.map((reason, number) => ({
      key: `${place} ${number}`,
      cells: [
        policy,
        by,
        html`<span class=${TONES[reason.verb]}>${reason.verb}</span>`,
        html`<${Long} text=${reason.text} max=${300} />${reason.until ? html` (<${Ago} at=${reason.until} />)` : null}`,
        reason.remedy ? html`<${Long} text=${reason.remedy} max=${300} />` : "",
      ],
    })),
  );
  return html`
    <${Table}
      label="Policies with reasons, the strictest first"
      head=${["policy", "scope", "says", "because", "to do"]}
      rows=${rows}
      empty="No policy stands in its way."
    />
    <p class="content">
      <span class="good">proceed</span>, with nothing against it:${" "}
      ${content.map(({ policy, by }) => (by === "unit" ? policy : `${policy} (${by})`)).join(", ") || "none"}
    </p>
  `;
}

function hasReasons({ verb, reasons }) {
  return verb !== "proceed" || reasons.length > 0;
}
