// What a unit spent over the last day, against its limit; and for who may, a little more of it.
import { html } from "../../lib.js";
import { Action } from "../../parts/action.js";
import { Curve } from "../../parts/curve.js";
import { Panel } from "../../parts/panel.js";
import { dollars } from "../../text.js";
import { Answered, useAsked } from "../asking.js";

const HOURS = 24;

export function Spend({ unit, running, over }) {
  const spend = useAsked("spend", { unit, hours: HOURS }, unit);
  const data = spend.data;
  const aside = data ? `${dollars(data.spent)}${data.limit ? ` of ${dollars(data.limit)}` : ""}` : "";
  return html`<${Panel} title=${`Spend, last ${HOURS} h`} aside=${aside}>
    <${Answered} answer=${spend}>
      ${({ points, limit, at }) =>
        points.length === 0
          ? html`<p class="nothing">It spent nothing.</p>`
          : html`<${Curve} points=${points} until=${at} limit=${limit} height=${140} />`}
    <//>
    ${data?.limit && data.spent && (running || (data.by !== "run" && !over)) // what a run may spend ends with it
      ? html`<div class="buttons">
          <${Action} verb="raise" args=${{ unit, more: "1.00", resume: !running }} label=${`Raise by $1${running ? "" : " and resume"}`} />
        </div>`
      : null}
  <//>`;
}
