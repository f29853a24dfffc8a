// Sessions that are kept while their clients are away.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, span, yes } from "./format.js";
import { pagedTable } from "./table.js";

const COLUMNS = [
  { label: "Client", cell: (row) => h("a", { href: `#/sessions/${encodeURIComponent(row.client)}` }, row.client) },
  { label: "User", cell: (row) => row.user || "–" },
  { label: "Connected", cell: (row) => yes(row.connected) },
  { label: "Ends in", number: true, cell: (row) => (row.ends_in_s === null ? "–" : span(row.ends_in_s)) },
  { label: "Subscriptions", number: true, cell: (row) => count(row.subscriptions) },
  { label: "Exchanges", number: true, cell: (row) => count(row.exchanges) },
  { label: "Will", cell: (row) => yes(row.has_will) },
];

export default {
  async show(page) {
    const table = pagedTable("Kept sessions", COLUMNS, async ({ search, after, limit }) => {
      const found = await get("/sessions", { tenant: page.tenant, prefix: search, after, limit });
      return { rows: found.sessions, next: found.next };
    }, { empty: "No session is kept." });
    await table.refresh();
    page.every(10000, table.refresh);
    return table.element;
  },
};
