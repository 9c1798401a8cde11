// The end of what a unit printed. The board does not know of it, so it is asked for while somebody looks: the panel is
// in sight, the tab in front. It follows the end until somebody scrolls up or searches.
import { look } from "../../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../lib.js";
import { place, setQuery } from "../../router.js";
import { useSignal } from "../../signal.js";
import { counted } from "../../text.js";
import { Asker } from "../asking.js";
import { plain } from "../plain.js";
import { OnHost } from "./host.js";

const LINES_MAX = 400; // what is asked for: more is searched with `flyball logs`
const LOOK_MS = 1500; // between two looks: soon enough for an eye that follows
const LINE_MAX = 10_000; // characters of one line: what is longer is no line for reading
const NOTHING = { lines: null, host: "", error: null };

export function Log({ unit }) {
  const [answer, setAnswer] = useState(NOTHING);
  const [follow, setFollow] = useState(true);
  const sought = useSignal(place).query.log ?? "";
  const panel = useRef(null);
  const box = useRef(null);

  useEffect(() => {
    setAnswer(NOTHING);
    return whileSeen(panel.current, () => look("logs", { unit, lines: LINES_MAX }), ({ data, error }) =>
      setAnswer((before) => ({ lines: data?.lines ?? before.lines, host: data?.host ?? before.host, error })),
    );
  }, [unit]);
  useLayoutEffect(() => {
    if (follow && !sought && box.current) box.current.scrollTop = box.current.scrollHeight;
  });

  const lines = (answer.lines ?? []).map((line) => plain(line.slice(0, LINE_MAX)));
  const found = sought ? lines.filter((line) => line.toLowerCase().includes(sought.toLowerCase())) : lines;
  return html`<div ref=${panel}>
    <div class="tools">
      <input
        type="search"
        placeholder="search"
        aria-label="Search the log"
        value=${sought}
        onInput=${(event) => setQuery({ log: event.target.value })}
      />
      <label><input type="checkbox" checked=${follow} onChange=${() => setFollow(!follow)} /> follow</label>
      <span class="dim" aria-live="polite">
        ${answer.lines === null ? "" : sought ? `${found.length} of ${counted(lines.length, "line")}` : `last ${counted(lines.length, "line")}`}
      </span>
    </div>
    ${answer.host ? html`<p class="busy" role="status">What it prints now is there: it runs <${OnHost} name=${answer.host} />.</p>` : ""}
    ${answer.error ? html`<p class="error">${answer.error.message}</p>` : ""}
    ${lines.length === 0
      ? html`<p class="nothing">${answer.lines === null ? "…" : "It has printed nothing yet."}</p>`
      : html`<div
          class="log"
          ref=${box}
          role="log"
          aria-live="off"
          aria-label="What it printed last"
          tabindex="0"
          onScroll=${(event) => setFollow(atEnd(event.target))}
        >
          ${found.map((line, number) => html`<div key=${number}>${sought ? marked(line, sought) : line || " "}</div>`)}
        </div>`}
  </div>`;
}

function atEnd(box) {
  return box.scrollHeight - box.scrollTop - box.clientHeight < 24; // one line: a wheel never stops exactly
}

/** A line with what is sought in it marked. */
function marked(line, sought) {
  const low = line.toLowerCase();
  const parts = [];
  let from = 0;
  for (let at = low.indexOf(sought.toLowerCase()); at >= 0; at = low.indexOf(sought.toLowerCase(), from)) {
    parts.push(line.slice(from, at), html`<mark>${line.slice(at, at + sought.length)}</mark>`);
    from = at + sought.length;
  }
  return [...parts, line.slice(from)];
}

/** Ask now and then, as long as the element is in sight and the tab in front; what is returned ends that. */
function whileSeen(element, ask, tell) {
  const asker = new Asker(ask, tell, LOOK_MS);
  let seen = false;
  const wanted = () => seen && document.visibilityState === "visible";
  const asks = () => wanted() && asker.want();
  const sight = new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    asks();
  });
  const timer = setInterval(asks, LOOK_MS);
  sight.observe(element);
  document.addEventListener("visibilitychange", asks);
  return () => {
    sight.disconnect();
    clearInterval(timer);
    document.removeEventListener("visibilitychange", asks);
    asker.close();
  };
}
