// The keyboard: each component says which keys it takes while it is there. Nothing is taken while somebody types.
import { useLayoutEffect } from "./lib.js";

const bound = []; // [{keys: {k: [what, run]}}], the newest last: it wins

/** Take keys while this component is there: `useKeys({r: ["reset", run]})`. A run that returns false leaves the key
 * to whoever took it before. */
export function useKeys(keys) {
  // Before it is painted: a key that is pressed at the first sight of a page is not lost.
  useLayoutEffect(() => {
    const entry = { keys };
    bound.push(entry);
    return () => bound.splice(bound.indexOf(entry), 1);
  });
}

/** All that is bound now, for the help: [[key, what]]. */
export function boundKeys() {
  const found = new Map();
  for (const { keys } of bound) for (const [key, [what]] of Object.entries(keys)) found.set(key, what);
  return [...found].filter(([, what]) => what);
}

function typing(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (typing(event.target) && event.key !== "Escape") return;
  if (document.querySelector("dialog[open]")) return; // a question is answered first
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  for (const { keys } of [...bound].reverse()) {
    const [, run] = keys[event.key] ?? [];
    if (run && run(event) !== false) {
      event.preventDefault();
      return;
    }
  }
});
