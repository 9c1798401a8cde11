// The pages besides the overview: where each is in the address, its title, and the key that goes there after `g`.
import { Audit } from "./audit.js";
import { Budgets } from "./budgets.js";
import { Failures } from "./failures.js";
import { Journal } from "./journal.js";
import { Rules } from "./rules.js";
import { Sessions } from "./sessions.js";
import { Unit } from "./unit/unit.js";

export const PAGES = [
  { path: "unit", title: "Unit", view: Unit },
  { path: "failures", title: "Failures", key: "f", nav: true, view: Failures },
  { path: "sessions", title: "Sessions", key: "s", nav: true, view: Sessions },
  { path: "budgets", title: "Budgets", key: "b", nav: true, view: Budgets },
  { path: "rules", title: "Rules", key: "r", nav: true, view: Rules },
  { path: "journal", title: "Journal", key: "j", nav: true, view: Journal },
  { path: "audit", title: "Audit", key: "a", nav: true, view: Audit },
];
