// A button that gives an order. It is absent for who may not, off while the daemon is gone, and asks where the order
// ends or forgets something.
import { order } from "../api.js";
import { html, useState } from "../lib.js";
import { useMay } from "../rights.js";
import { useSignal } from "../signal.js";
import { connection, isLive, rows } from "../store.js";
import { sayError, say } from "./notices.js";
import { confirmed } from "./question.js";

/** The names of the units that an order is for, as far as its arguments tell. */
export function meant(args) {
  if (args.units?.length) return args.units;
  if (args.unit) return [args.unit];
  if (args.all) return [...rows.keys()];
  if (args.user) return [...rows.values()].filter((row) => row.user === args.user).map((row) => row.name);
  return [];
}

/** Give an order, after asking if it has to be; its answer, or null if it was not given or did not come about. `units`:
 * those that it is for, where its arguments do not name them. */
export async function give({ verb, args = {}, label, destructive = false, units = meant(args), text = "", done = "" }) {
  if (!isLive()) return null;
  if (destructive && !(await confirmed({ title: `${label}?`, text: text || WARNINGS[verb] || "", units, label }))) {
    return null;
  }
  try {
    const answer = await order(verb, args);
    say(done || `${label}: done`);
    return answer ?? {};
  } catch (error) {
    sayError(error);
    return null;
  }
}

const WARNINGS = {
  pause: "What runs is ended, and held until it is resumed.",
  stop: "What runs is ended, and not started again.",
  kill: "What runs is ended at once, without grace: what it has not saved is lost.",
  restart: "What runs is ended, and started again.",
  reset: "Their failures are forgotten: they start again, and can fail again.",
};

export function Action({ verb, args, label, destructive, units, text, done, primary, then, title }) {
  const allowed = useMay(verb);
  const live = useSignal(connection) === "live";
  const [busy, setBusy] = useState(false);
  if (!allowed) return null;
  const run = async () => {
    setBusy(true);
    const answer = await give({ verb, args, label, destructive, units, text, done });
    setBusy(false);
    if (answer !== null) then?.(answer);
  };
  return html`<button
    class=${primary ? "primary" : ""}
    disabled=${!live || busy}
    aria-busy=${busy}
    data-verb=${verb}
    title=${live ? title : "The daemon is gone: nothing can be done from here."}
    onClick=${run}
  >
    ${label}
  </button>`;
}
