// Tenants, what they use, and their limits.

import { call, get, path } from "./api.js";
import { freshId, h, replace } from "./dom.js";
import { count, text, words } from "./format.js";
import { actionButton, dialog } from "./forms.js";
import { plainTable } from "./table.js";

function change(limit, done) {
  const id = freshId();
  const input = h("textarea", { id, rows: 6, spellcheck: "false", value: JSON.stringify(limit.limits, null, 1) });
  const isTenants = limit.scope === "tenant";
  const name = isTenants ? limit.tenant : limit.name;
  dialog({
    title: `Limits of ${limit.scope} ${name}`, about: "By name; null lifts one, and what is left out stays.", label: "Set", done,
    fields: [{ name: "limits", input, read: () => JSON.parse(input.value), element: h("div", { class: "field" }, h("label", { for: id }, "Limits, as JSON"), input) }],
    run: async ({ limits }) => { await call("PATCH", path`/limits/${limit.scope}/${name}`, { query: { tenant: isTenants ? undefined : limit.tenant }, body: limits }); },
  });
}

export default {
  async show(page) {
    const node = page.me.administers_node;
    const holder = h("div");
    async function refresh() {
      const { tenants } = await get("/tenants");
      const found = await get("/limits", node ? {} : { tenant: page.tenant });
      for (const tenant of node ? tenants : []) {
        const names = { tenant: tenant.name };
        tenant.actions = h("div", { class: "actions" },
          await actionButton({ method: "PATCH", template: "/tenants/{tenant}", names, button: "Change", title: `Change ${tenant.name}`, label: "Change", quiet: true, done: refresh }),
          await actionButton({ method: "DELETE", template: "/tenants/{tenant}", names, button: "Remove", title: `Remove the tenant ${tenant.name}?`, label: "Remove", danger: true, done: refresh }));
      }
      const columns = [...new Set(tenants.flatMap((each) => Object.keys(each)))].filter((name) => name !== "name" && name !== "is_configured" && name !== "actions");
      replace(holder,
        h("h2", {}, "Tenants"),
        plainTable("Tenants", [{ label: "Tenant", cell: (row) => row.name }, ...columns.map((name) => ({ label: words(name), number: name === "users", cell: (row) => text(row[name]) })), { label: "By", cell: (row) => (row.is_configured ? "settings" : "hand") }, { label: "", cell: (row) => row.actions }], tenants),
        h("h2", {}, "Used of limits"),
        plainTable("Used of limits", [
          { label: "Of", cell: (row) => `${row.scope} ${row.name}` }, { label: "Tenant", cell: (row) => row.tenant }, { label: "Limit", cell: (row) => words(row.kind) },
          { label: "Used", number: true, cell: (row) => count(row.used) }, { label: "At most", number: true, cell: (row) => count(row.limit) },
          { label: "Share", cell: (row) => h("progress", { max: 1000, value: Math.min(1000, row.limit ? Math.round((1000 * row.used) / row.limit) : 0), class: row.used >= row.limit ? "bad" : row.used > 0.75 * row.limit ? "warn" : "good", "aria-label": `${count(row.used)} of ${count(row.limit)}` }) }], found.used, { empty: "No limit is set." }),
        h("h2", {}, "Limits"),
        plainTable("Limits", [
          { label: "Of", cell: (row) => `${row.scope} ${row.name}` }, { label: "Tenant", cell: (row) => row.tenant },
          { label: "Limits", cell: (row) => Object.entries(row.limits).map(([name, value]) => h("div", {}, `${words(name)}: ${count(value)}`)) },
          { label: "From", cell: (row) => row.origin },
          { label: "", cell: (row) => node && h("button", { type: "button", class: "quiet", onclick: () => change(row, refresh) }, "Change") }], found.limits, { empty: "No limit is set: everybody shares what there is." }));
    }
    await refresh();
    page.every(10000, refresh);
    const named = () => {
      const one = freshId(); const two = freshId();
      const scope = h("select", { id: one }, ["tenant", "user", "topic", "listener"].map((each) => h("option", { value: each }, each)));
      const name = h("input", { id: two, autocomplete: "off" });
      dialog({ title: "Set limits", label: "Go on", fields: [
        { name: "scope", read: () => scope.value, input: scope, element: h("div", { class: "field" }, h("label", { for: one }, "Of a"), scope) },
        { name: "name", read: () => name.value, input: name, element: h("div", { class: "field" }, h("label", { for: two }, "Name (* for each)"), name) }],
      run: async (values) => { setTimeout(() => change({ scope: values.scope, name: values.name || "*", tenant: values.scope === "tenant" ? values.name || "*" : page.tenant, limits: { published_messages: 1000 } }, refresh), 0); } });
    };
    return h("div", {}, node && h("div", { class: "tools" },
      await actionButton({ method: "POST", template: "/tenants", button: "New tenant", title: "New tenant", label: "Create", done: refresh }),
      h("span", { class: "grow" }), h("button", { type: "button", class: "primary", onclick: named }, "Set limits")), holder);
  },
};
