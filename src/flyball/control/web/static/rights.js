// Who may do what. The server decides; this only keeps buttons away that would be refused.
import { me } from "./api.js";
import { useSignal } from "./signal.js";

const RANK = { look: 0, operate: 1, admin: 2 };
const ADMIN = new Set(["raise", "settle", "reload", "down"]);

export function may(verb, who = me.value) {
  return who !== null && (RANK[who.role] ?? 0) >= (ADMIN.has(verb) ? RANK.admin : RANK.operate);
}

/** The same, for a component: it is drawn again when the role is known. */
export function useMay(verb) {
  return may(verb, useSignal(me));
}
