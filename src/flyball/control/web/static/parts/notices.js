// What became of an order: a line at the foot of the page, read aloud, gone after a while. Errors stay until dismissed.
import { html } from "../lib.js";
import { signal, useSignal } from "../signal.js";

const NOTICES_MAX = 4; // more are not read
const SHOWN_MS = 6000;

const notices = signal([]);
let count = 0;

/** Say it: `say("Reset 7f3a9c: done")`, `say(error.message, {bad: true, remedy: error.remedy})`. */
export function say(text, { bad = false, remedy = "" } = {}) {
  const notice = { id: ++count, text, bad, remedy };
  notices.value = [...notices.value, notice].slice(-NOTICES_MAX);
  if (!bad) setTimeout(() => dismiss(notice.id), SHOWN_MS);
}

/** Say what went wrong, as the server told it. */
export function sayError(error) {
  say(error.message, { bad: true, remedy: error.remedy ?? "" });
}

function dismiss(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function Notices() {
  const shown = useSignal(notices);
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map(
      (notice) => html`<div key=${notice.id} class=${`notice ${notice.bad ? "bad" : "good"}`}>
        <span>${notice.text}${notice.remedy ? html`<br /><span class="dim">${notice.remedy}</span>` : null}</span>
        <button class="quiet" aria-label="Dismiss" onClick=${() => dismiss(notice.id)}>×</button>
      </div>`,
    )}
  </div>`;
}
