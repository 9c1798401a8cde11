// The frame around every page: header, banner, questions, notices. Which page is shown is in the address.
import { me } from "./api.js";
import { Banner, Header } from "./header.js";
import { useKeys } from "./keys.js";
import { html, render, useEffect, useErrorBoundary } from "./lib.js";
import { Overview } from "./overview/overview.js";
import { PAGES } from "./pages/index.js";
import { Empty } from "./parts/empty.js";
import { Help, toggleHelp } from "./parts/help.js";
import { Notices } from "./parts/notices.js";
import { Question } from "./parts/question.js";
import { go, href, place } from "./router.js";
import { useSignal } from "./signal.js";
import { connection, open, title, totals } from "./store.js";

const CHORD_MS = 1500; // `g` waits so long for the key of a page

const views = new Map([["", { title: "Overview", key: "o", view: Overview }], ...PAGES.map((page) => [page.path, page])]);

function App() {
  const where = useSignal(place);
  const found = views.get(where.page);
  useKeys({ "?": ["this help", toggleHelp], g: ["then a letter: go to a page", chord], Escape: ["", leave] });
  return html`
    <${Title} of=${found && where.page ? [...where.parts, found.title][0] : ""} />
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Header} views=${views} page=${where.page} />
    <${Banner} />
    <main id="main" tabindex="-1" key=${`${where.page}/${where.parts.join("/")}`}>
      <${Guarded}>${found ? html`<${found.view} parts=${where.parts} query=${where.query} />` : html`<${Unknown} />`}<//>
    </main>
    <${Question} />
    <${Help} views=${views} />
    <${Notices} />
  `;
}

/** The tab's title. A component of its own: it changes often, and nothing else is drawn again for that. */
function Title({ of }) {
  useSignal(totals);
  useSignal(connection);
  useSignal(me);
  const text = of ? `${title()} · ${of}` : title();
  useEffect(() => {
    document.title = text;
  }, [text]);
  return null;
}

/** A fault of one page leaves the rest as it is: people come here when something is wrong. */
function Guarded({ children }) {
  const [error, again] = useErrorBoundary();
  if (!error) return children;
  return html`<${Empty} title="This page has a fault">
    <p>${String(error)}</p>
    <button onClick=${again}>Try again</button>
  <//>`;
}

function Unknown() {
  return html`<${Empty} title="There is no such page"><a href=${href("")}>Go to the overview</a><//>`;
}

function skip(event) {
  event.preventDefault(); // the address is the router's
  document.getElementById("main").focus();
}

function leave() {
  if (document.activeElement !== document.body) document.activeElement.blur();
  else if (place.value.page) go("");
  else return false;
}

function chord() {
  const end = () => {
    clearTimeout(timer);
    window.removeEventListener("keydown", take, true);
  };
  const take = (event) => {
    end();
    const page = [...views].find(([, view]) => view.key === event.key);
    if (event.key === "g") window.scrollTo(0, 0);
    else if (page) go(page[0]);
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const timer = setTimeout(end, CHORD_MS);
  window.addEventListener("keydown", take, true);
}

const root = document.getElementById("app");
root.replaceChildren(); // what stood there for browsers that cannot do this
render(html`<${App} />`, root);
open();
