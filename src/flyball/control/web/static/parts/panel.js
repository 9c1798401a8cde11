// A box with a heading: what a page is made of.
import { html, useId } from "../lib.js";

export function Panel({ title, aside, children, kind = "", live = false }) {
  const id = useId();
  return html`<section class=${`panel ${kind}`} aria-labelledby=${id}>
    <header class="panel-head">
      <h2 id=${id} aria-live=${live ? "polite" : undefined}>${title}</h2>
      ${aside ? html`<div class="dim">${aside}</div>` : null}
    </header>
    ${children}
  </section>`;
}
