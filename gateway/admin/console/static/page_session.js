// One kept session, with what waits for each of its subscriptions.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { count, text, words } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";

export default {
  async show(page) {
    const { params: { name } } = page;
    const query = { tenant: page.tenant };
    const holder = h("div");
    async function refresh() {
      const { session, subscriptions, waiting } = await get(path`/sessions/${name}`, query);
      replace(holder,
        h("dl", { class: "facts" }, Object.entries({ ...session, waiting }).map(([key, value]) => [h("dt", {}, words(key)), h("dd", {}, text(value))])),
        h("h2", {}, "Subscriptions"),
        plainTable("Subscriptions", [
          { label: "Filter", cell: (row) => row.filter }, { label: "Share", cell: (row) => row.share || "–" },
          { label: "Waiting", number: true, cell: (row) => (row.waiting === null ? "not counted" : count(row.waiting)) }], subscriptions, { empty: "It subscribes to nothing." }));
    }
    await refresh();
    page.every(10000, refresh);
    return h("div", {}, h("div", { class: "actions" },
      await actionButton({ method: "DELETE", template: "/sessions/{client}", names: { client: name }, query, button: "End", title: `End the session of ${name}?`, about: "Its client is disconnected, and what waits for it is deleted.", label: "End it", danger: true, done: () => { location.hash = "#/sessions"; } })), holder);
  },
};
