// Every setting, its value, and who said so.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { text } from "./format.js";
import { plainTable } from "./table.js";

export default {
  async show() {
    const { settings } = await get("/settings");
    const holder = h("div");
    const changed = h("input", { type: "checkbox", id: "changed", onchange: () => refresh() });
    const search = h("input", { type: "search", class: "search", placeholder: "Search", "aria-label": "Search settings", "data-search": true, oninput: () => refresh() });
    function refresh() {
      const wanted = search.value.toLowerCase();
      const rows = settings.filter((each) => each.name.toLowerCase().includes(wanted) && !(changed.checked && each.origin === "default"));
      replace(holder, plainTable("Settings", [
        { label: "Setting", cell: (row) => h("span", { class: "mono" }, row.name) }, { label: "Value", cell: (row) => (typeof row.value === "number" ? String(row.value) : text(row.value)) },
        { label: "From", cell: (row) => (row.origin === "default" ? h("span", { class: "faint" }, "default") : h("b", {}, row.origin)) }], rows), h("p", { class: "note", role: "status" }, `${rows.length} of ${settings.length}`));
    }
    refresh();
    return h("div", {}, h("div", { class: "tools" }, search, h("label", { for: "changed" }, changed, " changed only")), holder);
  },
};
