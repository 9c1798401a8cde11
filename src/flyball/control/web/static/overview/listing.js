// Which rows are shown, in which order. Kept sorted: a change moves its own row and no other, so that ten thousand rows
// with hundreds of changes a second cost a few binary searches.
import { signal } from "../signal.js";
import { rows, watchRows } from "../store.js";

const RANK = ["quarantined", "halted", "failed", "paused", "cooling", "degraded", "healthy", "stopped", "finished"];
const SORTED_ANEW = 0.1; // where more than this part changed, sorting all is cheaper than moving each

/** What each column is sorted by. Numbers are turned so that the greatest comes first. */
const KEYS = {
  unit: () => 0,
  state: (row) => (row.often ? -0.5 : 0) + RANK.indexOf(row.state),
  kind: (row) => `${row.kind} ${row.host}`,
  restarts: (row) => -row.restarts,
  budget: (row) => (row.limit ? -row.spent / row.limit : 1),
  reason: (row) => row.error || row.reason || "\uffff",
};

export class Listing {
  /** The names, in order; anew at each change of order. */
  names = signal([]);

  #order = [];
  #keys = new Map(); // of those that are shown: by what they are sorted
  #test = null;
  #key = KEYS.state;
  #turn = 1;
  #text = null; // the order and the filter that are shown

  constructor() {
    this.end = watchRows((names, full) => this.#changed(names, full));
  }

  /** Show those that pass the test, sorted by a column; `-state` is the other way round. */
  show(sort, test, text) {
    const column = sort.replace(/^-/, "");
    if (this.#text === `${sort} ${text}`) return;
    this.#text = `${sort} ${text}`;
    this.#key = KEYS[column] ?? KEYS.state;
    this.#turn = sort.startsWith("-") ? -1 : 1;
    this.#test = test;
    this.#anew();
  }

  #anew() {
    this.#keys.clear();
    for (const row of rows.values()) {
      if (this.#test === null || this.#test(row)) this.#keys.set(row.name, this.#key(row));
    }
    this.#order = [...this.#keys.keys()].sort((a, b) => this.#compare(a, this.#keys.get(a), b, this.#keys.get(b)));
    this.names.value = this.#order;
  }

  #changed(names, full) {
    if (full || names.size > rows.size * SORTED_ANEW + 10) return this.#anew();
    let moved = false;
    for (const name of names) moved = this.#place(name) || moved;
    if (moved) this.names.value = this.#order = this.#order.slice();
  }

  /** Put one row where it belongs now; whether that is somewhere else. */
  #place(name) {
    const row = rows.get(name);
    const shown = row !== undefined && (this.#test === null || this.#test(row));
    const before = this.#keys.get(name);
    const key = shown ? this.#key(row) : undefined;
    if (before === key) return false;
    if (before !== undefined) {
      this.#order.splice(this.#find(name, before), 1);
      this.#keys.delete(name);
    }
    if (shown) {
      this.#order.splice(this.#find(name, key), 0, name);
      this.#keys.set(name, key);
    }
    return true;
  }

  /** Where it is, or would be. */
  #find(name, key) {
    let [low, high] = [0, this.#order.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const there = this.#order[middle];
      if (this.#compare(there, this.#keys.get(there), name, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #compare(a, keyA, b, keyB) {
    if (keyA < keyB) return -this.#turn;
    if (keyA > keyB) return this.#turn;
    return a < b ? -this.#turn : a > b ? this.#turn : 0;
  }
}
