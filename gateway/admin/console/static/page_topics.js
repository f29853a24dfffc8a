// Topics and queues: searched, sorted and paged by the server.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { actionButton } from "./forms.js";
import { pagedTable } from "./table.js";

const COLUMNS = [
  { label: "Name", sort: "name", cell: (row) => h("a", { href: `#/topics/${encodeURIComponent(row.name)}` }, row.name) },
  { label: "Type", cell: (row) => [row.type, " ", !row.durable && h("span", { class: "badge" }, "transient")] },
  { label: "Ready", sort: "ready", number: true, cell: (row) => count(row.ready) },
  { label: "In flight", sort: "leased", number: true, cell: (row) => count(row.leased) },
  { label: "Queues", sort: "queues", number: true, cell: (row) => count(row.queues) },
  { label: "Groups", sort: "groups", number: true, cell: (row) => count(row.groups) },
];

export default {
  async show(page) {
    const { tenant } = page;
    const made = () => table.refresh();
    const create = await actionButton({ method: "POST", template: "/topics", query: { tenant }, button: "New topic", title: "New topic", label: "Create", done: made });
    const table = pagedTable("Topics", COLUMNS, async ({ search, sort, after, limit }) => {
      const found = await get("/topics", { tenant, search, sort, after, limit });
      return { rows: found.topics, next: found.next, total: found.total };
    }, { sort: "name", tools: create, empty: "There is no topic yet. A client that declares or publishes makes one, and so does New topic." });
    await table.refresh();
    page.every(5000, table.refresh);
    return table.element;
  },
};
