// The keys that work here and now.
import { boundKeys } from "../keys.js";
import { html, useEffect, useRef } from "../lib.js";
import { signal, useSignal } from "../signal.js";

const open = signal(false);

export function toggleHelp() {
  open.value = !open.value;
}

export function Help({ views }) {
  const shown = useSignal(open);
  const dialog = useRef(null);
  useEffect(() => {
    if (shown) dialog.current?.showModal();
  }, [shown]);
  if (!shown) return null;
  const close = () => {
    open.value = false;
  };
  const pages = [...views.values()].filter((view) => view.key).map((view) => [`g ${view.key}`, view.title]);
  return html`<dialog ref=${dialog} aria-labelledby="help-title" onCancel=${close}>
    <h2 id="help-title">Keys</h2>
    <dl class="keys">
      ${[...boundKeys(), ...pages].map(
        ([key, what]) => html`<div key=${key}>
          <dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt>
          <dd>${what}</dd>
        </div>`,
      )}
    </dl>
    <div class="buttons"><button autofocus onClick=${close}>Close</button></div>
  </dialog>`;
}
