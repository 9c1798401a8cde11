// What the filter box means: words, `state:`, `kind:`, `user:`, `host:`, `is:`; a `-` before one turns it round.
import { isOver } from "../parts/state.js";

/** What can be said after `is:`. */
export const IS = {
  held: (row) => row.held,
  running: (row) => row.running,
  often: (row) => row.often,
  over: isOver,
  asking: (row) => row.questions > 0,
  problem: (row) => row.problem !== "",
};

const FIELDS = {
  state: (row, wanted) => wanted.some((one) => row.state.startsWith(one)),
  kind: (row, wanted) => wanted.some((one) => row.kind.startsWith(one)),
  user: (row, wanted) => wanted.some((one) => row.user.toLowerCase().startsWith(one)),
  host: (row, wanted) => wanted.some((one) => row.host.toLowerCase() === one),
  is: (row, wanted) => wanted.some((one) => IS[one]?.(row)),
};

/** A test of rows; null if everything passes. `state:quarantined,halted -kind:rule login` */
export function parse(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map(one);
  return tests.length ? (row) => tests.every((test) => test(row)) : null;
}

function one(word) {
  if (word.length > 1 && word.startsWith("-")) {
    const test = one(word.slice(1));
    return (row) => !test(row);
  }
  const [, field, value] = /^(state|kind|user|host|is):(.+)$/.exec(word) ?? [];
  if (field) {
    const wanted = value.split(",").filter(Boolean);
    return (row) => FIELDS[field](row, wanted);
  }
  return (row) => [row.name, row.error, row.reason, row.user].some((part) => part?.toLowerCase().includes(word));
}
