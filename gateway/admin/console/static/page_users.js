// Users and access keys.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { moment, yes } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";

export default {
  async show(page) {
    const { tenant } = page;
    const query = { tenant };
    const holder = h("div");
    const state = { after: "", prefix: "" };
    async function refresh() {
      const found = await get("/users", { tenant, prefix: state.prefix, after: state.after, limit: 100 });
      const { keys } = await get("/keys", query);
      const users = await Promise.all(found.users.map(async (user) => ({ ...user, actions: h("div", { class: "actions" },
        await actionButton({ method: "PATCH", template: "/users/{user}", names: { user: user.name }, query, given: { policies: user.policies, enabled: user.enabled }, button: "Change", title: `Change ${user.name}`, label: "Change", quiet: true, done: refresh }),
        await actionButton({ method: "POST", template: "/keys", query, only: [], always: { user: user.name }, button: "New key", title: `A new access key of ${user.name}`, about: "SQS and RocketMQ clients sign with it. The secret is shown once.", label: "Make it", quiet: true, done: refresh, told: (made) => h("dl", { class: "facts" }, h("dt", {}, "key id"), h("dd", { class: "mono" }, made.key_id), h("dt", {}, "secret"), h("dd", { class: "mono" }, made.secret)) }),
        await actionButton({ method: "DELETE", template: "/users/{user}", names: { user: user.name }, query, button: "Delete", title: `Delete the user ${user.name}?`, about: "Its connections end.", label: "Delete", danger: true, done: refresh })) })));
      const listed = await Promise.all(keys.map(async (key) => ({ ...key, actions: h("div", { class: "actions" },
        await actionButton({ method: "PATCH", template: "/keys/{key}", names: { key: key.key_id }, query, given: { enabled: key.enabled }, button: "Change", title: `Change ${key.key_id}`, label: "Change", quiet: true, done: refresh }),
        await actionButton({ method: "DELETE", template: "/keys/{key}", names: { key: key.key_id }, query, button: "Delete", title: `Delete the key ${key.key_id}?`, label: "Delete", danger: true, done: refresh })) })));
      replace(holder,
        plainTable("Users", [
          { label: "User", cell: (row) => row.name }, { label: "Policies", cell: (row) => row.policies.join(", ") || "–" },
          { label: "Enabled", cell: (row) => (row.enabled ? "yes" : h("span", { class: "badge warn" }, "disabled")) },
          { label: "Password", cell: (row) => yes(row.has_password) }, { label: "Keys", number: true, cell: (row) => row.keys.length },
          { label: "Made", cell: (row) => moment(row.created_ms) }, { label: "", cell: (row) => row.actions }], users, { empty: "There is no user yet. The development login is none: it is not stored." }),
        found.next && h("button", { type: "button", class: "quiet", onclick: () => { state.after = found.next; refresh(); } }, "Next"),
        h("h2", {}, "Access keys"),
        plainTable("Access keys", [
          { label: "Key", cell: (row) => h("span", { class: "mono" }, row.key_id) }, { label: "User", cell: (row) => row.user },
          { label: "Enabled", cell: (row) => (row.enabled ? "yes" : h("span", { class: "badge warn" }, "disabled")) },
          { label: "Made", cell: (row) => moment(row.created_ms) }, { label: "", cell: (row) => row.actions }], listed, { empty: "There is no access key yet." }));
    }
    const search = h("input", { type: "search", class: "search", placeholder: "Names that begin with", "aria-label": "Names that begin with", "data-search": true, oninput: () => { state.prefix = search.value; state.after = ""; refresh(); } });
    await refresh();
    return h("div", {}, h("div", { class: "tools" }, search, h("span", { class: "grow" }),
      await actionButton({ method: "POST", template: "/users", query, button: "New user", title: "New user", label: "Create", done: refresh })), holder);
  },
};
