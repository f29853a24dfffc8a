// How it all is: rates, depth, alarms, nodes, disk.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, replace } from "./dom.js";
import { bytes, compact, count, rate, span, words } from "./format.js";

const last = (values) => values.findLast((value) => value !== null) ?? null;

export const tile = (label, value, more, tone) =>
  h("div", { class: `tile ${tone || ""}` }, h("span", { class: "label" }, label), h("span", { class: "figure" }, value), more && h("span", { class: "more" }, more));

export function meter(label, used, most, said, { warn = 0.75, bad = 0.9 } = {}) {
  const part = most ? Math.min(1, used / most) : 0;
  const tone = part >= bad ? "bad" : part >= warn ? "warn" : "good";
  return h("div", { class: "meter" },
    h("div", { class: "meter-head" }, h("span", {}, label), h("span", {}, said)),
    h("progress", { max: 1000, value: Math.round(part * 1000), class: tone, "aria-label": `${label}: ${said}` }));
}

/** The two charts of a history. */
export function charts(history, lines, rates) {
  const { series } = history;
  const of = (wanted) => wanted.map(([name, label, tone]) => ({ label, tone, values: series[name] }));
  return h("div", { class: "charts" },
    chart("Messages a second", of(rates), history, rate),
    chart("Messages waiting", of(lines), history, compact));
}

const RATES = [["published", "published", "one"], ["delivered", "delivered", "two"], ["acked", "acked", "three"]];
const DEPTH = [["ready", "ready", "one"], ["leased", "in flight", "two"]];

function alarmsOf(health) {
  const found = health.checks.filter((check) => check.reason);
  if (!found.length) return h("p", { class: "calm" }, h("span", { class: "dot good", "aria-hidden": "true" }), "All is well: no check has anything to say.");
  return h("ul", { class: "alarms" }, found.map((check) =>
    h("li", { class: check.ok ? "warn" : "bad" }, h("strong", {}, `${check.ok ? "Alarm" : "Failing"}: ${words(check.name)}`), " ", check.reason)));
}

function connectionsAt(me, silent) {
  if (!me.in_cluster) return "at this process";
  return silent.length ? `without ${count(silent.length)} gateways that do not answer` : "at all gateways";
}

async function nodesOf(me) {
  const facts = await get("/node");
  const open = Object.entries(facts.connections);
  const rows = [h("div", { class: "card" },
    h("h3", {}, facts.name), h("p", { class: "faint" }, `Weir ${facts.version}, up ${span(facts.up_s)}`),
    facts.disk && meter("Disk", facts.disk.total_bytes - facts.disk.free_bytes, facts.disk.total_bytes,
      `${bytes(facts.disk.free_bytes)} free of ${bytes(facts.disk.total_bytes)}; refuses below ${bytes(facts.disk.mark_bytes)}`),
    Object.entries(facts.memory).map(([name, pool]) => meter(words(name), pool.bytes, pool.bytes_max, `${bytes(pool.bytes)} of ${bytes(pool.bytes_max)}`)),
    h("dl", { class: "inline" }, open.map(([name, number]) => [h("dt", {}, name), h("dd", {}, `${count(number)} connected`)])))];
  if (me.in_cluster) {
    const cluster = await get("/cluster");
    rows.push(h("div", { class: "card" }, h("h3", {}, "Cluster"), h("p", {}, `${cluster.nodes.length} stores. `, h("a", { href: "#/cluster" }, "Look at the cluster"))));
  }
  return rows;
}

export default {
  title: "Overview",
  async show(page) {
    const { me } = page;
    const whole = me.administers_node;
    const holder = h("div");
    async function refresh() {
      const history = await get("/history", whole ? {} : { tenant: page.tenant });
      const { series } = history;
      const topics = await get("/topics", { tenant: page.tenant, limit: 1 });
      const nodes = whole ? await nodesOf(me) : null;
      const open = await get("/connections/totals", whole ? {} : { tenant: page.tenant });
      const health = whole ? await get("/health") : null;
      replace(holder,
        h("div", { class: "tiles" },
          tile("Published", rate(last(series.published)), "a second"),
          tile("Delivered", rate(last(series.delivered)), "a second"),
          tile("Ready", compact(last(series.ready)), "messages wait"),
          tile("In flight", compact(last(series.leased)), "handed out, not acked"),
          topics.total !== undefined && tile("Topics", compact(topics.total), `of ${page.tenant}`),
          tile("Connections", compact(open.connections), connectionsAt(me, open.silent))),
        health && h("section", {}, h("h2", {}, "Alarms"), alarmsOf(health)),
        h("section", {}, h("h2", {}, whole ? "Last hour, all tenants" : `Last hour of ${page.tenant}`), charts(history, DEPTH, RATES),
          history.without.map((store) => h("p", { class: "note" }, `Without ${store}.`))),
        nodes && h("section", {}, h("h2", {}, "Nodes and disk"), h("div", { class: "cards" }, nodes)));
    }
    await refresh();
    page.every(5000, refresh);
    return holder;
  },
};
