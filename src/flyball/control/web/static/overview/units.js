// All units: a table of which only the rows in sight are there, so that ten thousand cost no more than fifty. Filter,
// order and the row that is chosen are in the address.
import { useKeys } from "../keys.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { give } from "../parts/action.js";
import { Empty } from "../parts/empty.js";
import { say } from "../parts/notices.js";
import { Panel } from "../parts/panel.js";
import { may } from "../rights.js";
import { go, place, setQuery } from "../router.js";
import { useSignal } from "../signal.js";
import { problemOf, rows, totals } from "../store.js";
import { number } from "../text.js";
import { parse } from "./filter.js";
import { Listing } from "./listing.js";
import { SNOOZE_SECONDS } from "./needs.js";
import { COLUMNS, Row } from "./row.js";

const ROW_PX = 36; // as in style.css
const CARD_PX = 96; // on a phone a row is a card
const PHONE = matchMedia("(max-width: 640px)");
const SPARE = 8; // rows beyond each edge: there before they are scrolled to
const FIRST_SORT = "state";

export function Units({ query }) {
  const { q = "", sort = FIRST_SORT, unit: chosen = "" } = query;
  const listing = useMemo(() => new Listing(), []);
  useEffect(() => listing.end, [listing]);
  listing.show(sort, parse(q), q);
  const names = useSignal(listing.names);
  const box = useRef(null);
  const [[first, last], height] = useWindow(box, names.length);
  useTableKeys({ listing, chosen, box, height });
  return html`<${Panel} title=${html`Units <${Count} shown=${names.length} />`} aside=${html`<${Filter} q=${q} />`} kind="units">
    <div class="table" role="table" aria-label="Units" aria-rowcount=${names.length + 1}>
      <div class="row head" role="row" aria-rowindex="1">
        ${COLUMNS.map(([id, label]) => html`<${Heading} key=${id} id=${id} label=${label} sort=${sort} />`)}
      </div>
      <div role="rowgroup" ref=${box} class="rows" style=${{ height: `${names.length * height}px` }}>
        <div style=${{ transform: `translateY(${first * height}px)` }}>
          ${useRows(names, first, last, chosen)}
        </div>
      </div>
    </div>
    ${names.length ? null : html`<${NoUnits} q=${q} />`}
  <//>`;
}

function Count({ shown }) {
  const { units } = useSignal(totals);
  return html`<span class="dim">${shown === units ? number(units) : `${number(shown)} of ${number(units)}`}</span>`;
}

/** The rows in sight. Those that are what they were before are the very same objects, which preact does not look into:
 * so when one row moves, the others cost nothing. */
function useRows(names, first, last, chosen) {
  const before = useRef(new Map());
  const drawn = new Map();
  for (let place = first; place < last; place++) {
    const name = names[place];
    const isChosen = name === chosen;
    const old = before.current.get(name);
    const same = old && old.props.place === place + 2 && old.props.chosen === isChosen;
    drawn.set(name, same ? old : html`<${Row} key=${name} name=${name} place=${place + 2} chosen=${isChosen} />`);
  }
  before.current = drawn;
  return [...drawn.values()];
}

function NoUnits({ q }) {
  if (rows.size) {
    return html`<${Empty} title="No unit is like that">
      <p><button onClick=${() => setQuery({ q: "" })}>Show all ${rows.size}</button></p>
    <//>`;
  }
  return html`<${Empty} title="There are no units yet">
    <p>Name some in <code>flyball.yaml</code>, then <code>flyball reload</code>; or run one now:</p>
    <p><code>flyball run --name first -- COMMAND</code></p>
  <//>`;
}

function Filter({ q }) {
  return html`<input
    id="filter"
    type="search"
    value=${q}
    placeholder="filter, or state:cooling"
    aria-label="Filter units: words, state:, kind:, user:, host:, is:held, is:running, is:often, is:over, is:asking, is:problem; - before one means not"
    title="Words, state:quarantined,halted kind:rule user:ann host:b is:held|running|often|over|asking|problem; - before one means not."
    autocomplete="off"
    spellcheck=${false}
    maxlength="200"
    onInput=${(event) => setQuery({ q: event.target.value })}
    onKeyDown=${(event) => (event.key === "Enter" || event.key === "Escape") && event.target.blur()}
  />`;
}

function Heading({ id, label, sort }) {
  const [column, back] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  const sorted = column === id;
  const next = sorted && !back ? `-${id}` : id;
  return html`<div role="columnheader" class=${`cell col-${id}`} aria-sort=${sorted ? (back ? "descending" : "ascending") : "none"}>
    <button class="heading" onClick=${() => setQuery({ sort: next === FIRST_SORT ? "" : next })}>
      ${label}<span aria-hidden="true">${sorted ? (back ? " ▴" : " ▾") : ""}</span>
    </button>
  </div>`;
}

/** Which rows are in sight: [[first, last], height of one]. The page itself scrolls, not a box in it. */
function useWindow(box, count) {
  const [sight, setSight] = useState([0, 40]);
  const [phone, setPhone] = useState(PHONE.matches);
  const height = phone ? CARD_PX : ROW_PX;
  useEffect(() => {
    const change = () => setPhone(PHONE.matches);
    PHONE.addEventListener("change", change);
    return () => PHONE.removeEventListener("change", change);
  }, []);
  useEffect(() => {
    const see = () => {
      if (box.current === null) return; // the page was left a moment ago
      const above = -box.current.getBoundingClientRect().top;
      // By steps of the spare rows: most scrolling changes nothing.
      const first = Math.max(0, Math.floor(above / height / SPARE) * SPARE - SPARE);
      const last = Math.max(Math.ceil((above + innerHeight) / height / SPARE) * SPARE, SPARE) + SPARE;
      setSight((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    see();
    const resized = new ResizeObserver(see); // what is above the table may grow or shrink
    resized.observe(document.body);
    addEventListener("scroll", see, { passive: true });
    addEventListener("resize", see);
    return () => {
      resized.disconnect();
      removeEventListener("scroll", see);
      removeEventListener("resize", see);
    };
  }, [height]);
  const last = Math.min(sight[1], count);
  return [[Math.min(sight[0], last), last], height];
}

/** The unit that is chosen at this moment. A key can come before the last one is drawn. */
function chosenNow() {
  return place.value.query.unit ?? "";
}

function useTableKeys({ listing, chosen, box, height }) {
  const wanted = useRef(false); // the chosen row is to have the focus as soon as it is there
  const move = (by) => {
    const names = listing.names.value;
    const at = names.indexOf(chosenNow());
    const next = Math.max(0, Math.min(names.length - 1, at < 0 ? 0 : at + by));
    if (!names.length) return;
    wanted.current = true;
    bringIntoSight(box.current, next, height);
    setQuery({ unit: names[next] });
  };
  useLayoutEffect(() => {
    const link = chosen && wanted.current ? box.current.querySelector('[aria-current="true"] a') : null;
    if (link && document.activeElement !== link) link.focus({ preventScroll: true });
  });
  useEffect(() => {
    const moved = (event) => {
      if (!box.current?.contains(event.target)) wanted.current = false;
    };
    addEventListener("focusin", moved);
    addEventListener("pointerdown", moved);
    return () => {
      removeEventListener("focusin", moved);
      removeEventListener("pointerdown", moved);
    };
  }, []);
  const onProblem = (verb, run) => () => {
    const unit = chosenNow();
    const problem = problemOf(rows.get(unit)?.problem);
    if (!may(verb)) return;
    if (!unit) say("Choose a unit first: j and k move");
    else if (!problem) say(`${unit} has no problem`);
    else run(problem);
  };
  useKeys({
    "/": ["filter", () => document.getElementById("filter").focus()],
    j: ["next unit", () => move(1)],
    k: ["unit before", () => move(-1)],
    Enter: ["open the unit", () => (chosenNow() ? go("unit", chosenNow()) : false)],
    r: ["reset the unit's failure", onProblem("reset", reset)],
    a: ["acknowledge its problem", onProblem("acknowledge", acknowledge)],
    s: ["snooze it for an hour", onProblem("snooze", snooze)],
  });
}

function reset(problem) {
  const action = problem.actions.find(({ verb }) => verb === "reset");
  if (action) give(action);
  else say(`${problem.unit} has nothing to reset`);
}

function acknowledge({ id, unit }) {
  give({ verb: "acknowledge", args: { problem: id }, label: "Ack", done: `${unit}: acknowledged` });
}

function snooze({ id, unit }) {
  const args = { problem: id, seconds: SNOOZE_SECONDS };
  give({ verb: "snooze", args, label: "Snooze 1 h", done: `${unit}: quiet for an hour` });
}

function bringIntoSight(box, place, height) {
  const top = box.getBoundingClientRect().top + place * height;
  const margin = 3 * height;
  if (top < margin) scrollBy(0, top - margin);
  else if (top + height > innerHeight - margin) scrollBy(0, top + height + margin - innerHeight);
}
