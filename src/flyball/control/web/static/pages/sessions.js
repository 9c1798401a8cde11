// Sessions: pieces of work that can be paused and resumed, live.
import { html } from "../lib.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Bar } from "../parts/state.js";
import { Ago } from "../parts/time.js";
import { setQuery } from "../router.js";
import { counted, dollars, tone } from "../text.js";
import { Answered, useAsked } from "./asking.js";
import { Choice, Filter, holds } from "./filter.js";
import { UnitLink } from "./links.js";
import { Name, cut, plain } from "./plain.js";
import { Table } from "./table.js";

const LOOKED_AT_MAX = 500; // those that changed last: older ones are found by their user
const STATUSES = [
  "running",
  "pending",
  "paused",
  "completed",
  "failed",
  "timed_out",
  "budget_exceeded",
  "stopped",
  "lost",
];

export function Sessions({ query: { q = "", user = "", status = "" } }) {
  const answer = useAsked("sessions", { user: user || null, status: status || null, limit: LOOKED_AT_MAX });
  const users = [...new Set((answer.data?.sessions ?? []).map((one) => one.user))].filter(Boolean).sort();
  return html`
    <h1>Sessions</h1>
    <${Panel} title="Sessions" aside=${answer.data ? countsText(answer.data.counts) : null} live>
      <div class="tools">
        <${Filter} value=${q} label="Filter sessions" onChange=${(text) => setQuery({ q: text })} />
        <${Choice} label="status" value=${status} words=${STATUSES} onChange=${(word) => setQuery({ status: word })} />
        <${Choice} label="user" value=${user} words=${users} onChange=${(word) => setQuery({ user: word })} />
        ${user ? html`<${OfUser} user=${user} />` : null}
      </div>
      <${Answered} answer=${answer}>
        ${({ sessions, left_out: left }) => html`
          <${Table}
            label="Sessions"
            head=${["session", "status", "user", "resumes", "steps", "budget", "since", "ended by"]}
            rows=${sessions.filter((one) => holds(q, one.id, one.user, one.stop_reason ?? "")).map(line)}
            empty=${q || user || status ? "No session fits the filter." : EMPTY}
          />
          ${left ? html`<p class="dim">${counted(left, "older session")} not looked at: choose a user.</p>` : null}
        `}
      <//>
    <//>
  `;
}

const EMPTY = "No session yet. Wrap a piece of work: `flyball run --session ID -- COMMAND`.";

function countsText(counts) {
  return Object.entries(counts)
    .map(([status, count]) => `${count} ${status.replace("_", " ")}`)
    .join(", ");
}

function line(one) {
  return {
    key: one.id,
    bad: one.held,
    cells: [
      html`<${UnitLink} name=${one.id} />`,
      html`<span class="state ${tone(one.status)}">${one.status.replace("_", " ")}</span>`,
      one.user ? html`<${Name} text=${one.user} />` : "",
      one.resumes ? `${one.resumes.used} of ${one.resumes.max}` : "",
      one.steps ? `${one.steps.used} of ${one.steps.max}` : "",
      one.budget ? html`${dollars(one.budget.spent)} <${Bar} spent=${one.budget.spent} limit=${one.budget.limit} />` : "",
      one.started ? html`<${Ago} at=${one.started} />` : "",
      one.failure_reason ?? one.stop_reason ?? "",
    ],
  };
}

function OfUser({ user }) {
  const name = cut(plain(user), 40);
  return html`
    <${Action} verb="pause" args=${{ user }} label=${`Pause all of ${name}`} destructive=${true} />
    <${Action} verb="resume" args=${{ user }} label=${`Resume ${name}`} />
  `;
}
