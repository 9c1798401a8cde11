// The top of every page: is it running, where, since when; and the one button that stops everything.
import { logout, me } from "./api.js";
import { html, useState } from "./lib.js";
import { HostsWord } from "./overview/hosts.js";
import { Action } from "./parts/action.js";
import { Clock, Span } from "./parts/time.js";
import { href } from "./router.js";
import { useSignal } from "./signal.js";
import { connection, fleet, heard, rows, totals } from "./store.js";
import { counted, tone } from "./text.js";

const KEYS = [["/", "filter"], ["j", ""], ["k", "move"], ["r", "reset"], ["a", "ack"], ["?", "help"]];

export function Header({ views, page }) {
  const who = useSignal(me);
  const live = useSignal(connection);
  return html`<header class="top">
    <div class="top-row">
      <a class="brand" href=${href("")}>flyball</a>
      <${FleetState} />
      <span class="where">
        ${who ? html`<span>${who.host}</span>` : null}
        ${who && live === "live" ? html`<span>up <${Span} at=${who.started} /></span>` : null}
        <${HostsWord} />
        <${Circuits} />
      </span>
      <span class="key-hints" aria-hidden="true">
        ${KEYS.map(([key, what]) => html`<kbd>${key}</kbd>${what ? ` ${what} ` : null}`)}
      </span>
      <${PauseAll} />
    </div>
    <nav class="menu" aria-label="Pages">
      ${[...views]
        .filter(([path, view]) => path === "" || view.nav)
        .map(
          ([path, view]) => html`<a key=${path} href=${href(path)} aria-current=${path === page ? "page" : undefined}>
            ${view.title}
          </a>`,
        )}
      <span class="spring"></span>
      <${Theme} />
      ${who ? html`<button class="quiet" title=${`${who.who}, who may ${who.role}`} onClick=${logout}>Log out</button>` : null}
    </nav>
  </header>`;
}

/** One word for the whole: what the daemon says of the fleet, or that something in it is not well. */
export function fleetWord(seen, counts) {
  if (!seen) return "…";
  if (seen.state !== "running") return seen.state;
  const ill = counts ? counts.quarantined + counts.halted + counts.failed + counts.over_budget : 0;
  return ill || seen.breaker !== "closed" || seen.breakers?.length || seen.storm ? "degraded" : "running";
}

function FleetState() {
  const seen = useSignal(fleet);
  const counts = useSignal(totals);
  const gone = useSignal(connection) === "gone";
  const word = gone ? "no daemon" : fleetWord(seen, counts);
  const reason = seen?.reasons?.[0]?.text ?? "";
  return html`<span class=${`pill ${gone ? "bad" : tone(word)}`} title=${reason} role="status">${word}</span>`;
}

function Circuits() {
  const seen = useSignal(fleet);
  if (!seen) return null;
  const others = (seen.breakers ?? []).filter((breaker) => breaker.by !== "fleet");
  return html`
    <span>circuit <b class=${tone(seen.breaker)}>${seen.breaker}</b></span>
    ${others.length
      ? html`<span class="busy" title=${others.map((one) => `${one.name} ${one.state}`).join(", ")}>
          ${counted(others.length, "circuit")} not closed
        </span>`
      : null}
    ${seen.storm ? html`<b class="bad">storm</b>` : null}
  `;
}

/** What pauses all, or lets all go on again. */
function PauseAll() {
  const seen = useSignal(fleet);
  const counts = useSignal(totals);
  if (!seen || !counts) return null;
  if (seen.held) return html`<${Action} verb="resume" args=${{}} label="Resume the fleet" primary done="The fleet goes on" />`;
  const running = counts.running;
  return html`<${Action}
    verb="pause"
    args=${{ all: true }}
    label="Pause all"
    destructive
    units=${[...rows.keys()]}
    text=${`${counted(running, "unit")} of ${counts.units} ${running === 1 ? "runs" : "run"} now and will be ended. Nothing starts until the fleet is resumed.`}
    done="All units are paused"
  />`;
}

function Theme() {
  const theme = window.flyballTheme;
  const [choice, setChoice] = useState(theme.kept());
  const next = theme.choices[(theme.choices.indexOf(choice) + 1) % theme.choices.length];
  const turn = () => {
    theme.choose(next);
    setChoice(next);
  };
  return html`<button class="quiet" aria-label=${`Theme: ${choice}. Change to ${next}`} onClick=${turn}>Theme: ${choice}</button>`;
}

/** An open page whose daemon is gone says so, and since when. */
export function Banner() {
  const state = useSignal(connection);
  const at = useSignal(heard);
  if (state !== "gone") return null;
  return html`<div class="banner" role="alert">
    <strong>The daemon does not answer.</strong>
    ${at ? html` What is shown is from <${Clock} at=${at} />, and nothing can be done from here.` : null} It is asked
    again and again; to look for yourself: <code>flyball status</code>, to start it: <code>flyball up -d</code>.
  </div>`;
}
