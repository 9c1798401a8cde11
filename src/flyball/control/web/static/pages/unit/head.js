// The head of a unit's page: its state, the reason, what to do about it, and every order that makes sense now.
import { useKeys } from "../../keys.js";
import { html } from "../../lib.js";
import { Action, give } from "../../parts/action.js";
import { say } from "../../parts/notices.js";
import { State } from "../../parts/state.js";
import { Ago } from "../../parts/time.js";
import { may } from "../../rights.js";
import { href } from "../../router.js";
import { useSignal } from "../../signal.js";
import { problems, useRow } from "../../store.js";
import { counted, tone } from "../../text.js";
import { Long, Name, plain } from "../plain.js";
import { Move, OnHost } from "./host.js";

const HOUR = 3600;

export function Head({ unit, why }) {
  const row = useRow(unit);
  const problem = useSignal(problems).find((one) => one.id === row?.problem);
  const seen = why?.unit;
  const reason = problem ?? seen?.reasons[0];
  return html`<header class="unit-head">
    <nav aria-label="Where this is"><a href=${href("")}>Overview</a> › unit</nav>
    <h1><${Name} text=${unit} max=${200} /></h1>
    <p class="facts">
      ${row ? html`<${State} row=${row} />` : seen ? html`<span class="state ${tone(seen.state)}">${seen.state}</span>` : null}
      ${seen ? html`<${Facts} seen=${seen} says=${why.says} often=${row?.often} />` : null}
    </p>
    ${reason
      ? html`<div class="reason ${problem?.severity ?? ""}" role="status">
          ${problem?.title ? html`<p><b><${Long} text=${problem.title} max=${200} /></b></p>` : null}
          <p><${Long} text=${reason.text} /></p>
          ${reason.remedy ? html`<p class="remedy"><b>To do: </b><${Long} text=${reason.remedy} /></p>` : null}
        </div>`
      : seen
        ? html`<p class="dim" role="status">Nothing holds it back.</p>`
        : null}
    ${seen ? html`<${Orders} unit=${unit} seen=${seen} problem=${problem} />` : null}
  </header>`;
}

function Facts({ seen, says, often }) {
  const labels = Object.entries(seen.labels);
  return html`
    <span>${seen.kind}</span>
    <${OnHost} name=${seen.host} />
    ${seen.since ? html`<span>since <${Ago} at=${seen.since} /></span>` : null}
    ${seen.until ? html`<span>goes on <${Ago} at=${seen.until} /></span>` : null}
    <span class=${often ? "bad" : ""}>${counted(seen.restarts.last_hour, "restart")} in the window, ${seen.restarts.total} in all</span>
    ${seen.failures_in_a_row ? html`<span class="bad">${counted(seen.failures_in_a_row, "failure")} in a row</span>` : null}
    ${says && says !== seen.reasons[0]?.text ? html`<span>says: <${Name} text=${says} /></span>` : null}
    ${labels.map(([key, value]) => html`<span class="label" key=${key}>${plain(key)}=<${Name} text=${value} /></span>`)}
  `;
}

/** Every order that makes sense now. The one that the problem names first is the one safe thing to do. */
function Orders({ unit, seen, problem }) {
  const offered = (problem?.actions ?? []).filter((one) => one.verb !== "answer"); // those are beside the question
  const usual = usualOrders(unit, seen).filter((one) => !offered.some((other) => same(one, other)));
  const unseen = problem && !problem.acknowledged;
  const order = (one) => (one && may(one.verb) ? give({ ...one, units: [unit] }) : false);
  useKeys({
    r: ["do the first of what is offered", () => order(offered[0])],
    a: ["acknowledge", () => order(unseen && acknowledging(problem))],
    s: ["snooze for an hour", () => order(unseen && snoozing(problem))],
  });
  return html`<div class="buttons" role="group" aria-label="Orders">
    ${[...offered, ...usual].map(
      (one, place) => html`<${Action}
        key=${`${one.verb} ${JSON.stringify(one.args)}`}
        ...${one}
        units=${[unit]}
        primary=${place === 0 && offered.length > 0}
        then=${(answer) => sayUntold(one.verb, unit, answer)}
      />`,
    )}
    ${unseen
      ? html`<${Action} ...${acknowledging(problem)} />
          ${problem.snoozed_until ? null : html`<${Action} ...${snoozing(problem)} />`}`
      : null}
    <${Move} unit=${unit} seen=${seen} />
    ${problem ? html`<${Seen} problem=${problem} />` : null}
  </div>`;
}

function acknowledging({ id }) {
  return { verb: "acknowledge", args: { problem: id }, label: "Acknowledge" };
}

function snoozing({ id }) {
  return { verb: "snooze", args: { problem: id, seconds: HOUR }, label: "Snooze 1 h" };
}

/** Who has seen it. */
function Seen({ problem: { acknowledged, snoozed_until: until, by } }) {
  const who = by ? html` by <${Name} text=${by} />` : null;
  if (acknowledged) return html`<span class="dim">acknowledged${who}</span>`;
  return until ? html`<span class="dim">snoozed${who}, until it gets worse or <${Ago} at=${until} /></span>` : null;
}

/** What a program runs itself, no daemon can start: then somebody has to know. */
function sayUntold(verb, unit, { told }) {
  if (["start", "restart", "resume"].includes(verb) && told && !told.includes(unit)) {
    say("It may run again; but no settings name it, so whoever ran it has to start it.");
  }
}

function same(one, other) {
  return one.verb === other.verb && JSON.stringify(one.args) === JSON.stringify(other.args);
}

/** What can be ordered of a unit in this state. What ends a run that runs asks first. */
export function usualOrders(unit, seen) {
  const [args, runs, rule] = [{ units: [unit] }, seen.running, seen.kind === "rule"];
  const ordered = ["paused", "stopped"].includes(seen.state);
  const over = seen.state === "finished" && !runs;
  const one = (verb, label, destructive = false, given = args) => ({ verb, args: given, label, destructive });
  return [
    waits(seen) && one("resume", "Resume"),
    rule && seen.state !== "paused" && one("trigger", "Fire", false, { rule: unit }),
    !seen.held && !ordered && !over && one("pause", "Pause", runs),
    (seen.kind === "unit" ? !runs && !seen.held : seen.kind === "session" && over) && one("start", "Start"),
    seen.kind === "unit" && runs && one("restart", "Restart", true),
    (runs || (!seen.held && !ordered && !over)) && one("stop", "Stop", runs),
    runs && one("kill", "Kill", true),
  ].filter(Boolean);
}

/** Whether a resume can let it go on. */
function waits(seen) {
  const held = ["paused", "halted", "failed", "stopped"].includes(seen.state);
  return !seen.running && held;
}
