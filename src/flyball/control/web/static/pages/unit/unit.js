// One unit: what it is, why, the one safe thing to do; then how it came to this, and what it costs.
import { html, useEffect } from "../../lib.js";
import { Panel } from "../../parts/panel.js";
import { Clock } from "../../parts/time.js";
import { href } from "../../router.js";
import { Answered, Fault, isGone, useAsked } from "../asking.js";
import { Long, Name } from "../plain.js";
import { Exits } from "./exits.js";
import { Head } from "./head.js";
import { Ladder } from "./ladder.js";
import { Log } from "./log.js";
import { Opinions } from "./opinions.js";
import { Questions } from "./questions.js";
import { Rule } from "./rule.js";
import { Session } from "./session.js";
import { Spend } from "./spend.js";

const EXITS_MAX = 60; // of the strip: a line on a desk, three on a phone

export function Unit({ parts: [name = ""] }) {
  const why = useAsked("why", { unit: name, limit: 1 }, name);
  const history = useAsked("history", { unit: name, limit: EXITS_MAX }, name);
  useEffect(() => {
    // A thread of a graph may be named without its graph.
    if (why.data && why.data.unit.name !== name) location.replace(href("unit", why.data.unit.name));
  }, [why.data]);
  if (isGone(why.error)) return html`<${Missing} error=${why.error} />`;
  const told = why.data;
  const unit = told?.unit.name ?? name;
  return html`<div class="unit">
    <${Head} unit=${unit} why=${told} />
    ${why.error ? html`<${Fault} error=${why.error} />` : null}
    ${told?.unit.questions.length ? html`<${Questions} unit=${unit} questions=${told.unit.questions} />` : null}
    <div class="columns">
      <div class="column">
        <${Panel} title="Exits" aside=${`the last ${EXITS_MAX}`}>
          <${Answered} answer=${history}>${({ exits }) => html`<${Exits} exits=${exits} />`}<//>
        <//>
        <${Panel} title="Ladder" aside="what each failure costs">
          <${Answered} answer=${history}>
            ${({ ladder, flaps }) => html`<${Ladder} ladder=${ladder} flaps=${flaps} />`}
          <//>
        <//>
        ${told?.rule ? html`<${Rule} rule=${told.rule} />` : null}
        ${told?.session ? html`<${Session} session=${told.session} story=${told.post_mortem} />` : null}
        <${Panel} title="Opinions" aside="what every policy says now">
          <${Answered} answer=${why}>${({ opinions }) => html`<${Opinions} opinions=${opinions} />`}<//>
        <//>
      </div>
      <div class="column">
        <${Spend} unit=${unit} running=${told?.unit.running} over=${told?.unit.state === "finished"} />
        <${Panel}
          title="Timeline"
          aside=${html`<a href=${href("journal", { unit })}>all of it</a>`}
        >
          <${Answered} answer=${history}>${({ timeline }) => html`<${Timeline} timeline=${timeline} />`}<//>
        <//>
      </div>
    </div>
    ${told?.detail
      ? html`<${Panel} title="Last failure in full">
          <pre class="trace" tabindex="0" aria-label="Stack trace"><${Long} text=${told.detail} max=${4000} /></pre>
        <//>`
      : null}
    <${Panel} title="Log"><${Log} unit=${unit} /><//>
  </div>`;
}

function Missing({ error }) {
  return html`<${Fault} error=${error} />
    <p class="nothing"><a href=${href("")}>Go to the overview</a>, where all units are.</p>`;
}

function Timeline({ timeline }) {
  if (timeline.length === 0) return html`<p class="nothing">Nothing happened to it yet.</p>`;
  return html`<ol class="timeline">
    ${[...timeline].reverse().map(
      (one) => html`<li key=${one.seq}>
        <${Clock} at=${one.at} />${" "}
        <span class=${one.tone}><${Long} text=${one.text} max=${300} /></span>
        ${one.by && !one.text.includes(one.by) ? html`<span class="dim"> · <${Name} text=${one.by} /></span>` : null}
      </li>`,
    )}
  </ol>`;
}
