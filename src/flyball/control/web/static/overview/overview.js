// The first page answers in this order: is it running, does anything need me, why, what is the one safe thing to do,
// what does it cost.
import { html } from "../lib.js";
import { Empty } from "../parts/empty.js";
import { useSignal } from "../signal.js";
import { connection, known } from "../store.js";
import { Hosts } from "./hosts.js";
import { Needs } from "./needs.js";
import { Spend } from "./spend.js";
import { Tiles } from "./tiles.js";
import { Timeline } from "./timeline.js";
import { Units } from "./units.js";

export function Overview({ query }) {
  const state = useSignal(connection);
  if (!useSignal(known)) {
    return html`<${Empty} title=${state === "gone" ? "There is nothing to show yet" : "Asking the daemon"} />`;
  }
  return html`<h1 class="hidden">Overview</h1>
    <${Tiles} />
    <div class="columns">
      <div class="column">
        <${Needs} />
        <${Units} query=${query} />
      </div>
      <aside class="column" aria-label="Hosts, money and what happened">
        <${Hosts} />
        <${Spend} />
        <${Timeline} />
      </aside>
    </div>`;
}
