// What units wrote, made fit to be shown: nothing in it deceives an eye, or turns the text around it. That it is text,
// and never a part of the page, the page's library sees to.
import { html, useState } from "../lib.js";

const CUT_MAX = 600; // characters of a text that is shown whole: some lines of a phone
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g; // colours, titles, links
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g; // all but tab and line feed
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // what forces a direction on the text that follows

/** Without colours; other control characters become pictures of them. */
export function plain(text) {
  return String(text ?? "")
    .replace(/\r\n/g, "\n")
    .replace(ESCAPES, "")
    .replace(CONTROLS, (char) => (char < " " ? String.fromCharCode(0x2400 + char.charCodeAt(0)) : "\u2421"))
    .replace(TURNS, "\u2426");
}

/** A name, or another short text within a line: isolated, so that its direction is its own. */
export function Name({ text, max = 80 }) {
  const whole = plain(text).replace(/\s+/g, " ");
  return html`<bdi title=${whole.length > max ? whole : undefined}>${cut(whole, max)}</bdi>`;
}

/** A text of any length: its beginning, and the rest if somebody wants it. */
export function Long({ text, max = CUT_MAX }) {
  const [open, setOpen] = useState(false);
  const whole = plain(text);
  if (whole.length <= max) return html`<bdi class="long">${withCode(whole)}</bdi>`;
  return html`<bdi class="long">${withCode(open ? whole : cut(whole, max))}</bdi>${" "}
    <button class="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "less" : "more"}</button>`;
}

/** What stands between backticks is to be typed. */
function withCode(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return text; // one of them has no other
  return parts.map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));
}

/** The first so many characters, none of them halved. */
export function cut(text, max) {
  return text.length <= max ? text : `${Array.from(text.slice(0, max)).slice(0, -1).join("")}…`;
}
