// Narrowing a list: a line to type in, and choices. What is chosen is in the address.
import { html, useRef } from "../lib.js";
import { useKeys } from "../keys.js";
import { plain } from "./plain.js";

/** A line to type in; `/` goes there. */
export function Filter({ value, label, onChange }) {
  const line = useRef(null);
  useKeys({ "/": ["filter", () => line.current.focus()] });
  return html`<input
    ref=${line}
    type="search"
    placeholder="filter"
    aria-label=${label}
    value=${value}
    onInput=${(event) => onChange(event.target.value)}
  />`;
}

/** One of some words, or any. */
export function Choice({ value, label, words, onChange }) {
  const there = value && !words.includes(value) ? [value, ...words] : words;
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    <option value="">${label}: any</option>
    ${there.map((word) => html`<option key=${word} value=${word}>${plain(word)}</option>`)}
  </select>`;
}

/** Whether one of the texts has all the words. */
export function holds(words, ...texts) {
  const whole = texts.join("\n").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => whole.includes(word));
}
