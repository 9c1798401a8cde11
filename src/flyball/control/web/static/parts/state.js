// What a unit is, in a word or two, with its colour; and how much of its budget is used.
import { html } from "../lib.js";
import { useSignal } from "../signal.js";
import { now } from "../store.js";
import { dollars, exact, length, tone } from "../text.js";

/** Whether a budget is used up. One of each run is gone with the run: then how it ended tells. */
export function isOver(row) {
  return row.code === "cost_budget_exceeded" || (row.limit > 0 && row.spent >= row.limit);
}

/** [text, tone] of a row: `running 3 h`, `cooldown 12 s`, `quarantined`. */
export function stateOf(row, at) {
  if (row.state === "cooling") return [row.until ? `cooldown ${length(row.until - at)}` : "cooldown", "busy"];
  if (row.running && (row.state === "healthy" || row.state === "degraded")) {
    const text = row.since ? `running ${length(at - row.since)}` : "running";
    return [row.state === "healthy" ? text : `${text}, flaps`, tone(row.state)];
  }
  if (isOver(row) && !["quarantined", "halted", "failed"].includes(row.state)) return ["over budget", "bad"];
  if (row.state === "healthy") return ["ready", "idle"];
  return [row.state, tone(row.state)];
}

export function State({ row }) {
  const [text, colour] = stateOf(row, useSignal(now));
  return html`<span class=${`state ${colour}`} title=${row.since ? `since ${exact(row.since)}` : ""}>${text}</span>`;
}

/** A bar of what is spent of a limit. */
export function Bar({ spent, limit }) {
  if (!limit) return html`<span class="dim" title="No budget of money">—</span>`;
  const part = Math.min(1, spent / limit);
  const colour = part >= 1 ? "bad" : part >= 0.8 ? "busy" : "good";
  const text = `${dollars(spent)} of ${dollars(limit)}`;
  return html`<span class="bar" role="img" aria-label=${text} title=${text}>
    <span class=${colour} style=${{ width: `${Math.round(part * 100)}%` }}></span>
  </span>`;
}
