// Names of units that lead to their pages.
import { html } from "../lib.js";
import { href } from "../router.js";
import { Name } from "./plain.js";

const NAMED_MAX = 5; // in a cell

export function UnitLink({ name }) {
  return name ? html`<a href=${href("unit", name)}><${Name} text=${name} /></a>` : html`<span class="dim">fleet</span>`;
}

/** Some of them; `of`: how many there are. */
export function Units({ names, of }) {
  const more = of - Math.min(names.length, NAMED_MAX);
  return html`<span title=${more > 0 ? names.join(", ") : undefined}>
    ${names.slice(0, NAMED_MAX).map((name, place) => html`${place ? ", " : ""}<${UnitLink} name=${name} />`)}
    ${more > 0 ? ` and ${more} more` : ""}
  </span>`;
}
