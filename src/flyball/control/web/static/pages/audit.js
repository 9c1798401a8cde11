// The audit trail: who ordered what, through which channel, and with which effect; also what was refused. It is read
// from the journal, which no order changes.
import { html, useEffect } from "../lib.js";
import { Panel } from "../parts/panel.js";
import { Ago } from "../parts/time.js";
import { setQuery } from "../router.js";
import { Answered, useAsked } from "./asking.js";
import { Choice, Filter, holds } from "./filter.js";
import { Long, Name } from "./plain.js";
import { Table } from "./table.js";
import { tail } from "./tail.js";

const LIMIT = 300; // the newest so many

export function Audit({ query: { q = "", who = "", verb = "" } }) {
  const answer = useAsked("audit", { limit: LIMIT, who: who || null, verb: verb || null });
  const last = answer.data?.last;
  useEffect(() => {
    if (last === undefined) return undefined;
    return tail(last, (entry) => entry.event === "ordered" && answer.again()); // a refused order changes no unit
  }, [last === undefined]);
  const all = answer.data?.audit ?? [];
  return html`
    <h1>Audit</h1>
    <${Panel} title="Who did what" aside="newest first">
      <div class="tools">
        <${Filter} value=${q} label="Filter the audit trail" onChange=${(text) => setQuery({ q: text })} />
        <${Choice} label="who" value=${who} words=${words(all, "by")} onChange=${(word) => setQuery({ who: word })} />
        <${Choice} label="verb" value=${verb} words=${words(all, "verb")} onChange=${(word) => setQuery({ verb: word })} />
      </div>
      <${Answered} answer=${answer}>
        ${({ audit }) => html`<${Table}
          label="Orders, newest first"
          head=${["when", "who", "channel", "verb", "asked", "effect"]}
          rows=${newest(audit).filter((one) => holds(q, one.by, one.channel, one.verb, one.asked, one.effect)).map(line)}
          empty=${audit.length ? "No order fits the filter." : "Nobody ordered anything yet."}
        />`}
      <//>
    <//>
  `;
}

function words(all, name) {
  return [...new Set(all.map((one) => one[name]))].filter(Boolean).sort();
}

function newest(audit) {
  return [...audit].sort((one, other) => other.seq - one.seq);
}

function line(one) {
  return {
    key: one.seq,
    bad: Boolean(one.refused),
    cells: [
      html`<${Ago} at=${one.at} />`,
      html`<${Name} text=${one.by || "a person"} />`,
      one.channel,
      html`<b>${one.verb}</b>`,
      html`<${Long} text=${one.asked} max=${200} />`,
      one.refused
        ? html`<span class="bad">refused: <${Long} text=${one.effect || one.refused} max=${200} /></span>`
        : html`<${Long} text=${one.effect} max=${200} />`,
    ],
  };
}
