// Words for people: times, money, names. The present is an argument here too. All instants are Unix seconds.

// Made once: making one takes longer than all else that a row costs.
const WHOLE = new Intl.NumberFormat("en-US");
const CENTS = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const SMALL = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 4 });

/** `10,000` */
export function number(count) {
  return count < 1000 ? String(count) : WHOLE.format(count);
}

/** `3 h`, `12 s`: a length at a glance. */
export function length(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 2 * 86400) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** `2 min ago`, `in 12 s`. */
export function relative(at, now) {
  const away = at - now;
  if (Math.abs(away) < 1) return "now";
  return away > 0 ? `in ${length(away)}` : `${length(-away)} ago`;
}

/** `2026-11-16 02:14:07`, in the reader's own zone. */
export function exact(at) {
  const when = new Date(at * 1000);
  const two = (n) => String(n).padStart(2, "0");
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

/** `02:14`; with its date if it is not of the last day. */
export function clock(at, now) {
  const text = exact(at);
  return Math.abs(now - at) < 86400 ? text.slice(11, 16) : text.slice(5, 16);
}

/** `$7.42` of millionths; parts of a cent where it is less than ten cents. */
export function dollars(millionths) {
  const amount = millionths / 1e6;
  const small = amount !== 0 && Math.abs(amount) < 0.1;
  return `$${(small ? SMALL : CENTS).format(amount)}`;
}

/** `1 unit`, `6 units`. */
export function counted(count, what) {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}

/** `a, b, c and 4 more`. */
export function listed(names, most = 5) {
  const more = names.length - most;
  return more > 0 ? `${names.slice(0, most).join(", ")} and ${more} more` : names.join(", ");
}

/** A fingerprint as it is shown. */
export function short(fingerprint) {
  return fingerprint.slice(0, 8);
}

/** How a state is coloured: good, busy, bad, idle. */
export function tone(state) {
  return TONES[state] ?? "idle";
}

const TONES = {
  healthy: "good",
  up: "good",
  running: "good",
  completed: "good",
  closed: "good",
  degraded: "busy",
  cooling: "busy",
  paused: "busy",
  pending: "busy",
  draining: "busy",
  "half-open": "busy",
  quarantined: "bad",
  halted: "bad",
  failed: "bad",
  open: "bad",
  timed_out: "bad",
  budget_exceeded: "bad",
  lost: "bad",
  over_budget: "bad",
};
