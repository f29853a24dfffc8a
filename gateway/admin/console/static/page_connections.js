// Who is connected.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, span } from "./format.js";
import { pagedTable } from "./table.js";

const COLUMNS = [
  { label: "Connection", sort: "id", cell: (row) => h("a", { href: `#/connections/${encodeURIComponent(row.id)}` }, row.id) },
  { label: "User", sort: "user", cell: (row) => (row.tenant && row.tenant !== "default" ? `${row.tenant}:${row.user}` : row.user || "–") },
  { label: "From", sort: "peer", cell: (row) => row.peer },
  { label: "Protocol", sort: "protocol", cell: (row) => [row.protocol, row.ssl && " over TLS"] },
  { label: "Client", sort: "client_id", cell: (row) => row.client_id || row.client || "–" },
  { label: "State", sort: "state", cell: (row) => [row.state, row.waits_for && h("span", { class: "badge warn" }, `waits for ${row.waits_for}`)] },
  { label: "Since", sort: "connected_s", number: true, cell: (row) => span(row.connected_s) },
  { label: "Consumers", sort: "consumers", number: true, cell: (row) => count(row.consumers) },
  { label: "Unacked", sort: "messages_unacknowledged", number: true, cell: (row) => count(row.messages_unacknowledged) },
  { label: "Received", sort: "recv_oct", number: true, cell: (row) => bytes(row.recv_oct) },
  { label: "Sent", sort: "send_oct", number: true, cell: (row) => bytes(row.send_oct) },
];

const GATEWAY = { label: "Gateway", cell: (row) => row.node };

export default {
  async show(page) {
    const tenant = page.me.administers_node ? undefined : page.tenant;
    const protocol = h("select", { "aria-label": "Protocol", onchange: () => table.refresh() }, h("option", { value: "" }, "every protocol"), ["amqp", "mqtt", "rocketmq", "sqs"].map((each) => h("option", { value: each }, each)));
    const user = h("input", { type: "search", placeholder: "of user", "aria-label": "Of user", "data-search": true, onchange: () => table.refresh() });
    const node = h("input", { type: "search", placeholder: "at gateway", "aria-label": "At gateway", onchange: () => table.refresh() });
    const silent = h("p", { class: "note", role: "status" });
    const columns = page.me.in_cluster ? [COLUMNS[0], GATEWAY, ...COLUMNS.slice(1)] : COLUMNS;
    const table = pagedTable("Connections", columns, async ({ sort, after, limit }) => {
      const found = await get("/connections", { tenant, sort, after, limit, protocol: protocol.value, user: user.value, node: node.value });
      replace(silent, found.silent.map((each) => `Without gateway ${each.gateway}: ${each.reason}. `));
      return { rows: found.connections, next: found.next };
    }, { sort: "id", search: false, tools: page.me.in_cluster ? [user, node, protocol] : [user, protocol], empty: "Nobody is connected." });
    await table.refresh();
    page.every(5000, table.refresh);
    return h("div", {}, silent, table.element);
  },
};

