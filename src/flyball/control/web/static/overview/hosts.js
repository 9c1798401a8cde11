// The hosts of the fleet: who lives, and runs how much. Only where there are hosts: a fleet on one machine has no such
// panel.
import { html } from "../lib.js";
import { Name } from "../pages/plain.js";
import { Table } from "../pages/table.js";
import { Action } from "../parts/action.js";
import { Panel } from "../parts/panel.js";
import { Ago } from "../parts/time.js";
import { href } from "../router.js";
import { useSignal } from "../signal.js";
import { fleet, rows } from "../store.js";
import { counted, tone } from "../text.js";

const WEB = /^https?:\/\//i; // what else an address may be is not followed

export function Hosts() {
  const hosts = useSignal(fleet)?.hosts ?? [];
  if (!hosts.length) return null;
  const lost = hosts.filter((host) => host.state === "lost").length;
  return html`<${Panel}
    title=${html`Hosts <span class="dim">${hosts.length}</span>`}
    aside=${lost ? html`<b class="bad">${lost} lost</b>` : null}
    kind="hosts"
  >
    <${Table}
      label="Hosts of the fleet"
      head=${["host", "state", "units", ""]}
      rows=${hosts.map((host) => ({
        key: host.name,
        cells: [html`<${HostName} host=${host} />`, html`<${HostState} host=${host} />`, unitsOf(host), html`<${Order} host=${host} />`],
      }))}
      empty=""
    />
  <//>`;
}

/** Its name leads to its page, if it has one that can be reached by the web. */
export function HostName({ host }) {
  const labels = Object.entries(host.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const title = [host.version && `flyball ${host.version}`, ...labels].filter(Boolean).join(", ");
  const name = html`<${Name} text=${host.name} />`;
  return html`<span title=${title}>
    ${WEB.test(host.page ?? "") ? html`<a href=${host.page} rel="noreferrer">${name}</a>` : name}
  </span>`;
}

function HostState({ host }) {
  return html`<span class="state ${tone(host.state)}">${host.state}</span>${" "}
    ${host.since ? html`<span class="dim"><${Ago} at=${host.since} /></span>` : null}
    ${host.differs ? html` <span class="busy">other settings</span>` : null}`;
}

function unitsOf(host) {
  if (host.state === "lost") return html`<span class="dim">had ${host.units}</span>`;
  const of = host.units_max ? html`<span class="dim"> of ${host.units_max}</span>` : null;
  return html`<a href=${href("", { q: `host:${host.name}` })}>${host.units}</a>${of}`;
}

function Order({ host }) {
  const args = { host: host.name };
  if (host.state === "draining") {
    return html`<${Action} verb="undrain" args=${args} label="Undo" done=${`${host.name} takes units again`} />`;
  }
  if (host.state === "lost") return "";
  return html`<${Action}
    verb="drain"
    args=${args}
    label="Drain"
    destructive
    units=${[...rows.values()].filter((row) => row.host === host.name).map((row) => row.name)}
    text=${`${host.name} takes no units any more. What it runs is ended in order, and started on other hosts.`}
    done=${`${host.name} drains`}
  />`;
}

/** In a line: on how many hosts, and how many are lost. */
export function HostsWord() {
  const hosts = useSignal(fleet)?.hosts ?? [];
  if (!hosts.length) return null;
  const lost = hosts.filter((host) => host.state === "lost").length;
  return html`<span>${counted(hosts.length - lost, "host")}${lost ? html`, <b class="bad">${lost} lost</b>` : null}</span>`;
}
