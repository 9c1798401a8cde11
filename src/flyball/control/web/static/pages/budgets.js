// Budgets: what was spent, is reserved and may be spent, of every meter; what is nearest to its limit first.
import { html, useState } from "../lib.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { useMay } from "../rights.js";
import { setQuery } from "../router.js";
import { dollars, length } from "../text.js";
import { Answered, useAsked } from "./asking.js";
import { Filter, holds } from "./filter.js";
import { UnitLink } from "./links.js";
import { Name } from "./plain.js";
import { Table } from "./table.js";

const MONEY = "usd";
const AMOUNT = /^\d{1,6}(\.\d{1,6})?$/; // what the daemon takes for an amount
const RAISABLE = ["unit", "run", "user", "fleet"]; // whose budgets `raise` can name

export function Budgets({ query: { q = "" } }) {
  const answer = useAsked("budgets");
  const raises = useMay("raise");
  return html`
    <h1>Budgets</h1>
    <${Panel} title="Budgets">
      <div class="tools">
        <${Filter} value=${q} label="Filter budgets" onChange=${(text) => setQuery({ q: text })} />
      </div>
      <${Answered} answer=${answer}>
        ${({ budgets, left_out: left }) => html`<${Table}
          label="Budgets, nearest to the limit first"
          head=${["of", "meter", "used", "reserved", "limit", "per", raises ? "raise" : ""].filter((name) => name)}
          rows=${budgets.filter((one) => holds(q, one.unit, one.subject, one.meter, one.by)).map((one) => line(one, raises))}
          empty=${budgets.length ? "No budget fits the filter." : "Nothing is spent of any budget now. One of each run is here while the run is; `budget` in the settings makes one."}
          left=${left}
        />`}
      <//>
    <//>
  `;
}

function part(one) {
  return one.limit ? (one.spent + one.reserved) / one.limit : 0;
}

/** `$1.50`, or `900 tokens`: every other meter is counted whole. */
function amount(meter, value) {
  return meter === MONEY ? dollars(value) : value.toLocaleString("en-US");
}

function line(one, raises) {
  const over = part(one) >= 1;
  return {
    key: `${one.by} ${one.subject} ${one.unit} ${one.meter} ${one.every}`,
    bad: over,
    cells: [
      html`<${Whose} one=${one} />`,
      one.meter,
      html`${amount(one.meter, one.spent)} <${Part} one=${one} over=${over} />`,
      one.reserved ? amount(one.meter, one.reserved) : "",
      limitText(one),
      everyText(one.every),
      ...(raises ? [html`<${Raise} one=${one} />`] : []),
    ],
  };
}

function limitText({ meter, limit, raised }) {
  if (limit === null) return "not known here"; // a program's own
  return `${amount(meter, limit)}${raised ? ` (${amount(meter, raised)} of it raised)` : ""}`;
}

/** Of whom, and by what it is counted. */
function Whose({ one }) {
  if (one.by === "fleet") return "the fleet";
  const by = one.by === "unit" ? null : html` <span class="dim">(${one.by})</span>`;
  if (one.unit) return html`<${UnitLink} name=${one.unit} />${by}`;
  return html`<span class="dim">${one.by}</span> <${Name} text=${one.subject} />`;
}

function Part({ one, over }) {
  const share = Math.min(1, part(one));
  const tone = over ? "bad" : share >= 0.8 ? "busy" : "good";
  const text = `${Math.round(share * 100)} %`;
  return html`<span class="bar" role="img" aria-label=${text} title=${text}>
    <span class=${tone} style=${{ width: `${Math.round(share * 100)}%` }}></span>
  </span>`;
}

function everyText(every) {
  return every ? length(every) : "all its time";
}

function Raise({ one }) {
  const [more, setMore] = useState(one.meter === MONEY ? "1.00" : "1000");
  if (one.limit === null || !RAISABLE.includes(one.by)) return null;
  const whose = one.by === "fleet" ? { fleet: true } : one.by === "user" ? { user: one.subject } : { unit: one.unit };
  const good = AMOUNT.test(more) && Number(more) > 0;
  return html`<span class="raise">
    <input
      inputmode="decimal"
      size="6"
      aria-label=${`Raise by how much ${one.meter}`}
      aria-invalid=${!good}
      value=${more}
      onInput=${(event) => setMore(event.target.value)}
    />
    ${good
      ? html`<${Action}
          verb="raise"
          args=${{ ...whose, meter: one.meter, more, resume: true }}
          label="Raise and resume"
        />`
      : html`<span class="bad" role="alert">a number above 0</span>`}
  </span>`;
}
