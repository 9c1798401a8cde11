// On which host a unit runs, and how it is moved to another.
import { html } from "../../lib.js";
import { HostName } from "../../overview/hosts.js";
import { give } from "../../parts/action.js";
import { useMay } from "../../rights.js";
import { useSignal } from "../../signal.js";
import { connection, fleet } from "../../store.js";
import { Name, plain } from "../plain.js";

/** `on b`, where there are hosts. */
export function OnHost({ name }) {
  const host = (useSignal(fleet)?.hosts ?? []).find((one) => one.name === name);
  if (!name) return null;
  return html`<span>on ${host ? html`<${HostName} host=${host} />` : html`<${Name} text=${name} />`}</span>`;
}

/** Choose another host: asked first, for the unit is ended where it runs. */
export function Move({ unit, seen }) {
  const hosts = (useSignal(fleet)?.hosts ?? []).filter((host) => host.state === "up" && host.name !== seen.host);
  const live = useSignal(connection) === "live";
  if (!useMay("move") || !hosts.length || !["unit", "session"].includes(seen.kind)) return null;
  const move = async (event) => {
    const host = event.target.value;
    event.target.value = "";
    await give({
      verb: "move",
      args: { unit, host },
      label: `Move to ${host}`,
      destructive: true,
      text: `It is ended in order where it runs, and started on ${host}; so is what runs on one host with it.`,
    });
  };
  return html`<select aria-label="Move to another host" disabled=${!live} value="" onChange=${move}>
    <option value="">Move to…</option>
    ${hosts.map((host) => html`<option key=${host.name} value=${host.name}>${plain(host.name)}</option>`)}
  </select>`;
}
