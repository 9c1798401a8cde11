// Ask before something is ended or forgotten: what, how many, which. The safe answer has the focus.
import { html, useEffect, useRef } from "../lib.js";
import { signal, useSignal } from "../signal.js";
import { connection } from "../store.js";
import { counted, listed } from "../text.js";

const NAMED_MAX = 12; // names in a question: more are not read

const asked = signal(null);

/** Whether the person says yes: `await confirmed({title: "Pause all", text: "…", units: names, label: "Pause 17 units"})`. */
export function confirmed(question) {
  asked.value?.answer(false);
  return new Promise((answer) => {
    asked.value = { ...question, answer };
  });
}

export function Question() {
  const question = useSignal(asked);
  const live = useSignal(connection) === "live";
  const dialog = useRef(null);
  useEffect(() => {
    if (question && !dialog.current.open) dialog.current.showModal();
  }, [question]);
  if (!question) return null;
  const close = (yes) => {
    asked.value = null;
    question.answer(yes);
  };
  const units = question.units ?? [];
  return html`<dialog ref=${dialog} aria-labelledby="question-title" onCancel=${() => close(false)}>
    <h2 id="question-title">${question.title}</h2>
    ${question.text ? html`<p>${question.text}</p>` : null}
    ${units.length
      ? html`<p class="dim">${counted(units.length, "unit")}: <span class="names">${listed(units, NAMED_MAX)}</span></p>`
      : null}
    <div class="buttons">
      <button autofocus onClick=${() => close(false)}>Cancel</button>
      <button class="danger" disabled=${!live} onClick=${() => close(true)}>${question.label}</button>
    </div>
  </dialog>`;
}
