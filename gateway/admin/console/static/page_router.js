// One router and its routes: what AMQP calls bindings.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { text, words } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";

export default {
  async show(page) {
    const { params: { name } } = page;
    const query = { tenant: page.tenant };
    const names = { router: name };
    const holder = h("div");
    async function refresh() {
      const router = await get(path`/routers/${name}`, query);
      const { routes } = await get(path`/routers/${name}/routes`, query);
      const fields = [...new Set(routes.flatMap((each) => Object.keys(each)))].filter((each) => each !== "id");
      const rows = await Promise.all(routes.map(async (route) => ({ ...route, actions: await actionButton({ method: "DELETE", template: "/routers/{router}/routes/{route}", names: { router: name, route: route.id }, query, button: "Delete", title: "Delete the route?", label: "Delete", danger: true, done: refresh }) })));
      replace(holder,
        h("dl", { class: "facts" }, Object.entries(router).map(([key, value]) => [h("dt", {}, words(key)), h("dd", {}, text(value))])),
        h("h2", {}, "Routes"),
        plainTable("Routes", [{ label: "Route", cell: (row) => h("span", { class: "mono" }, row.id) },
          ...fields.map((field) => ({ label: words(field), cell: (row) => text(row[field]) })), { label: "", cell: (row) => row.actions }], rows, { empty: "No route leads from here." }));
    }
    await refresh();
    page.every(10000, refresh);
    return h("div", {}, h("div", { class: "actions" },
      await actionButton({ method: "POST", template: "/routers/{router}/routes", names, query, button: "New route", title: "New route", label: "Create", done: refresh }),
      await actionButton({ method: "DELETE", template: "/routers/{router}", names, query, button: "Delete", title: `Delete the router ${name}?`, label: "Delete", danger: true, done: () => { location.hash = "#/routers"; } })), holder);
  },
};
