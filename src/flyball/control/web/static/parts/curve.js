// What was spent over time, against its limit: uPlot in the colours of the theme.
import { html, useEffect, useRef } from "../lib.js";
import { dollars, exact } from "../text.js";

/** `points`: [[at, spent in millionths], …]; `limit` in millionths or null; `until`: nothing was spent after the last of
 * them till then. */
export function Curve({ points, limit, until, height = 120, label }) {
  const place = useRef(null);
  useEffect(() => {
    const element = place.current; // of its own: the reference is gone before this is told that it is over
    let plot = null;
    let over = false;
    const make = async () => {
      const { default: UPlot } = await import("../vendor/uplot.js"); // large, and not needed for the first look
      if (over) return;
      plot?.destroy();
      plot = new UPlot(options(element, height), data(points, limit, until), element);
    };
    make();
    const resized = new ResizeObserver(([entry]) => plot?.setSize({ width: entry.contentRect.width, height }));
    resized.observe(element);
    window.addEventListener("flyball-theme", make);
    const preferred = matchMedia("(prefers-color-scheme: light)");
    preferred.addEventListener("change", make);
    return () => {
      over = true;
      plot?.destroy();
      resized.disconnect();
      window.removeEventListener("flyball-theme", make);
      preferred.removeEventListener("change", make);
    };
  }, [points, limit, height]);
  return html`<div class="curve" ref=${place} role="img" aria-label=${label ?? summary(points, limit)}></div>`;
}

function summary(points, limit) {
  const spent = points.length ? points.at(-1)[1] : 0;
  return `Spent ${dollars(spent)}${limit ? ` of ${dollars(limit)}` : ""}`;
}

function data(points, limit, until) {
  const last = points.at(-1);
  const all = last && until > last[0] ? [...points, [until, last[1]]] : points;
  const at = all.map(([instant]) => instant);
  return [at, all.map(([, spent]) => spent / 1e6), at.map(() => (limit ? limit / 1e6 : null))];
}

/** `02:14`; with seconds where the whole curve is of some minutes. */
function hour(plot, at) {
  const { min, max } = plot.scales.x;
  return exact(at).slice(11, max - min < 600 ? 19 : 16);
}

function options(element, height) {
  const colour = (name) => getComputedStyle(element).getPropertyValue(name).trim();
  const [dim, line] = [colour("--dim"), colour("--line")];
  const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: element.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    hooks: {
      setCursor: [(plot) => {
        const { idx } = plot.cursor;
        element.title = idx === null || idx === undefined ? "" : `${exact(plot.data[0][idx])}: $${plot.data[1][idx].toFixed(2)}`;
      }],
    },
    axes: [
      { ...axis, size: 24, values: (plot, ticks) => ticks.map((at) => hour(plot, at)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((amount) => dollars(amount * 1e6)) },
    ],
    scales: { y: { range: (_, low, high) => [0, Math.max(high, 0.01) * 1.1] } },
    series: [
      {},
      { label: "spent", stroke: colour("--accent"), width: 2, points: { show: false } },
      { label: "limit", stroke: colour("--bad"), width: 1.5, dash: [5, 4], points: { show: false } },
    ],
  };
}
