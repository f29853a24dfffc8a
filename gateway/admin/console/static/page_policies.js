// Policies: rules over topics, routers, groups and the rest.

import { get } from "./api.js";
import { freshId, h, replace } from "./dom.js";
import { actionButton, ask, dialog } from "./forms.js";
import { plainTable } from "./table.js";

export default {
  async show(page) {
    const query = { tenant: page.tenant };
    const holder = h("div");
    async function refresh() {
      const { policies } = await get("/policies", query);
      const rows = await Promise.all(policies.map(async (policy) => ({ ...policy, actions: policy.is_built_in ? h("span", { class: "badge" }, "built in") : h("div", { class: "actions" },
        await actionButton({ method: "PUT", template: "/policies/{policy}", names: { policy: policy.name }, query, given: policy, button: "Change", title: `Change ${policy.name}`, label: "Change", quiet: true, done: refresh }),
        await actionButton({ method: "DELETE", template: "/policies/{policy}", names: { policy: policy.name }, query, button: "Delete", title: `Delete the policy ${policy.name}?`, label: "Delete", danger: true, done: refresh })) })));
      replace(holder, plainTable("Policies", [
        { label: "Policy", cell: (row) => row.name },
        { label: "Rules", cell: (row) => row.rules.map((rule) => h("div", { class: "mono" }, rule)) },
        { label: "", cell: (row) => row.actions }], rows));
    }
    function create() {
      const id = freshId();
      const input = h("input", { id, autocomplete: "off" });
      dialog({
        title: "New policy", label: "Go on", fields: [{ name: "name", read: () => input.value, input, element: h("div", { class: "field" }, h("label", { for: id }, "Name"), input) }],
        run: async ({ name }) => { if (!name) throw new Error("a policy has a name"); setTimeout(() => ask({ method: "PUT", template: "/policies/{policy}", names: { policy: name }, query, title: `Rules of ${name}`, about: "One rule a line: allow publish topic:orders-*", label: "Create", done: refresh }), 0); },
      });
    }
    await refresh();
    return h("div", {}, h("div", { class: "tools" }, h("span", { class: "grow" }), h("button", { type: "button", class: "primary", onclick: create }, "New policy")), holder);
  },
};
