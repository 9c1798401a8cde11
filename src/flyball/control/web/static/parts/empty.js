// What stands where there is nothing to show: it says what to do.
import { html } from "../lib.js";

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}
