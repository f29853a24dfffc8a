// Routers: what AMQP calls exchanges.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, yes } from "./format.js";
import { actionButton } from "./forms.js";
import { pagedTable } from "./table.js";

const COLUMNS = [
  { label: "Router", cell: (row) => h("a", { href: `#/routers/${encodeURIComponent(row.name)}` }, row.name) },
  { label: "Match", cell: (row) => row.match }, { label: "Durable", cell: (row) => yes(row.durable) }, { label: "Internal", cell: (row) => yes(row.internal) },
  { label: "Alternate", cell: (row) => row.alternate || "–" }, { label: "Routes", number: true, cell: (row) => count(row.routes) },
];

export default {
  async show(page) {
    const query = { tenant: page.tenant };
    const table = pagedTable("Routers", COLUMNS, async ({ search, after, limit }) => {
      const found = await get("/routers", { ...query, prefix: search, after, limit });
      return { rows: found.routers, next: found.next };
    }, { tools: await actionButton({ method: "POST", template: "/routers", query, button: "New router", title: "New router", label: "Create", done: () => table.refresh() }), empty: "There is no router yet." });
    await table.refresh();
    page.every(10000, table.refresh);
    return table.element;
  },
};
