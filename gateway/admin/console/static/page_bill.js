// What has been counted for the bill.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { count, span, words } from "./format.js";
import { actionButton } from "./forms.js";
import { tile } from "./page_overview.js";

export default {
  async show(page) {
    const holder = h("div");
    async function refresh() {
      const found = await get("/metering");
      const { state, age_us: age, ...others } = found;
      replace(holder,
        h("div", { class: "tiles" },
          tile("Metering", String(state).toLowerCase(), "of this process", found.over_limit ? "bad" : ""),
          tile("Rows counted", count(found.rows_flushed), "in the log"),
          tile("Rows waiting", count(found.rows_waiting), "for their flush"),
          tile("Oldest count", span(age / 1e6), "that is in no log yet")),
        h("dl", { class: "facts" }, Object.entries(others).map(([name, value]) => [h("dt", {}, words(name)), h("dd", {}, typeof value === "number" ? count(value) : String(value))])));
    }
    await refresh();
    page.every(5000, refresh);
    return h("div", {}, h("p", { class: "about" }, "Invoices are made of the exported records: `weir bill --month YYYY-MM` prices them by the price book."),
      h("div", { class: "actions" }, await actionButton({ method: "POST", template: "/metering/export", button: "Export now", title: "Export what was counted", label: "Export", done: refresh, told: (made) => h("p", {}, `${count(made.rows)} rows in ${count(made.files)} files, in ${made.directory}.`) })), holder);
  },
};
