// What the last 24 hours cost. Asked anew when the totals say that more was spent, and not more often than it is read.
import { look } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { Curve } from "../parts/curve.js";
import { Panel } from "../parts/panel.js";
import { useSignal } from "../signal.js";
import { connection, totals } from "../store.js";
import { dollars } from "../text.js";

const EVERY_MS = 10_000; // the curve has at most 288 points a day: it does not change faster than that

export function Spend() {
  const spent = useSignal(totals)?.spent_day;
  const live = useSignal(connection) === "live";
  const [seen, setSeen] = useState(null);
  useEffect(() => {
    if (!live) return undefined;
    let over = false;
    const wait = seen === null ? 0 : Math.max(0, seen.asked + EVERY_MS - Date.now());
    const timer = setTimeout(async () => {
      const answer = await look("spend", { hours: 24 }).catch(() => null);
      if (answer && !over) setSeen({ ...answer, asked: Date.now() });
    }, wait);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [spent, live]);
  return html`<${Panel} title="Spend, last 24 h" aside=${seen ? dollars(seen.spent) : null}>
    ${seen?.points.length
      ? html`<${Curve} points=${seen.points} until=${seen.at} limit=${seen.limit} height=${130} />`
      : html`<p class="nothing">${seen ? "Nothing was spent." : "…"}</p>`}
  <//>`;
}
