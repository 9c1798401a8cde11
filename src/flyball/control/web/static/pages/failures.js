// What failed, by fingerprint: one line for a failure of one kind, however many units have it.
import { html } from "../lib.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Ago } from "../parts/time.js";
import { setQuery } from "../router.js";
import { counted, short } from "../text.js";
import { Answered, useAsked } from "./asking.js";
import { Circuits } from "./circuits.js";
import { Filter, holds } from "./filter.js";
import { Units } from "./links.js";
import { Name } from "./plain.js";
import { Table } from "./table.js";

export function Failures({ query: { q = "" } }) {
  const answer = useAsked("failures");
  return html`
    <h1>Failures</h1>
    <${Circuits} />
    <${Panel} title="By fingerprint" aside=${answer.data ? counted(answer.data.failures.length, "kind") : null}>
      <div class="tools">
        <${Filter} value=${q} label="Filter failures" onChange=${(text) => setQuery({ q: text })} />
        ${answer.data?.failures.length ? html`<${ResetAll} failures=${answer.data.failures} />` : null}
      </div>
      <${Answered} answer=${answer}>
        ${({ failures, left_out: left }) => html`<${Table}
          label="Failures, worst first"
          head=${["fingerprint", "error", "times", "units", "first", "last", "waits", ""]}
          rows=${failures.filter((one) => holds(q, one.fingerprint, one.error, ...one.units)).map(line)}
          empty=${failures.length ? "No failure fits the filter." : "No failure is remembered. That is good."}
          left=${left}
        />`}
      <//>
    <//>
  `;
}

function line(one) {
  return {
    key: one.fingerprint,
    bad: one.quarantined,
    cells: [
      html`<code title=${one.fingerprint}>${short(one.fingerprint)}</code>`,
      html`<${Name} text=${one.error || "failure"} />`,
      one.count,
      html`<${Units} names=${one.units} of=${one.of} />`,
      html`<${Ago} at=${one.first} />`,
      html`<${Ago} at=${one.last} />`,
      one.quarantined
        ? html`<span class="state bad">quarantined</span>`
        : one.until
          ? html`<${Ago} at=${one.until} />`
          : "",
      html`<${Action}
        verb="reset"
        args=${{ fingerprint: one.fingerprint }}
        label=${`Reset ${short(one.fingerprint)}`}
        destructive=${one.of > 1}
        text=${`It is forgotten in ${counted(one.of, "unit")}: they start again, and can fail again.`}
        units=${one.units}
      />`,
    ],
  };
}

function ResetAll({ failures }) {
  const units = [...new Set(failures.flatMap((one) => one.units))];
  return html`<${Action}
    verb="reset"
    args=${{ all: true }}
    label="Reset all"
    destructive=${true}
    text=${`${counted(failures.length, "kind")} of failures: all of them are forgotten, and every quarantine is lifted.`}
    units=${units}
  />`;
}
