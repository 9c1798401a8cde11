// A rule: what fires it, what it does, and what waits in its queue.
import { html } from "../../lib.js";
import { Action } from "../../parts/action.js";
import { Panel } from "../../parts/panel.js";
import { Ago } from "../../parts/time.js";
import { counted } from "../../text.js";
import { Name, plain } from "../plain.js";
import { Table } from "../table.js";

export function Rule({ rule }) {
  const counts = Object.entries(rule.counts);
  return html`<${Panel} title="Rule" aside=${rule.defined ? null : "the settings do not name it any more"}>
    <dl class="facts">
      <div>
        <dt>fired by</dt>
        <dd>
          ${rule.triggers.map(
            (one, place) => html`<div key=${place}>
              <${Name} text=${one.text} />${one.next ? html`, next <${Ago} at=${one.next} />` : null}
            </div>`,
          )}
        </dd>
      </div>
      ${rule.when ? html`<div><dt>when</dt><dd><code>${plain(rule.when)}</code></dd></div>` : null}
      <div><dt>does</dt><dd>${rule.actions.map((text, place) => html`<div key=${place}><${Name} text=${text} /></div>`)}</dd></div>
      ${counts.length
        ? html`<div><dt>since the start</dt><dd>${counts.map(([fate, count]) => `${count} ${fate}`).join(", ")}</dd></div>`
        : null}
    </dl>
    <h3>Queue</h3>
    <${Queue} rule=${rule} />
  <//>`;
}

export function Queue({ rule }) {
  return html`
    <${Table}
      label=${`Queue of ${plain(rule.name)}, oldest first`}
      head=${["fired by", "when", "attempt", "joined", ""]}
      rows=${rule.queue.map((one) => ({
        key: one.id,
        cells: [
          html`<${Name} text=${one.by_person ? `${one.trigger} (a person)` : one.trigger} />`,
          html`<${Ago} at=${one.at} />`,
          one.attempt,
          one.joined,
          one.running ? html`<span class="good">running</span>` : "waits",
        ],
      }))}
      empty="Nothing waits."
    />
    ${rule.waiting
      ? html`<div class="buttons">
          <${Action}
            verb="forget_firings"
            args=${{ rule: rule.name }}
            label=${`Forget ${counted(rule.waiting, "firing")}`}
            destructive=${true}
            text="What waits in the queue is forgotten: nothing runs for it."
            units=${[rule.name]}
          />
        </div>`
      : null}
  `;
}
