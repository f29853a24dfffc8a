// One connection, with its channels and consumers.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, span, text, words } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";

export default {
  async show(page) {
    const { params: { name } } = page;
    const tenant = page.me.administers_node ? undefined : page.tenant;
    const holder = h("div");
    let first = null;
    async function refresh() {
      const { connection, channels } = await get(path`/connections/${name}`, { tenant });
      first = first || connection;
      const { rates, connected_s: since, recv_oct: received, send_oct: sent, ...others } = connection;
      replace(holder,
        h("dl", { class: "facts" },
          Object.entries(others).map(([key, value]) => [h("dt", {}, words(key)), h("dd", {}, text(value))]),
          h("dt", {}, "since"), h("dd", {}, span(since)), h("dt", {}, "received"), h("dd", {}, `${bytes(received)}, ${bytes(rates && rates.recv_oct)} a second`),
          h("dt", {}, "sent"), h("dd", {}, `${bytes(sent)}, ${bytes(rates && rates.send_oct)} a second`)),
        h("h2", {}, "Channels"),
        plainTable("Channels", [
          { label: "Channel", cell: (row) => row.number }, { label: "State", cell: (row) => row.state }, { label: "Confirms", cell: (row) => text(row.confirm) },
          { label: "Prefetch", number: true, cell: (row) => count(row.prefetch_count) }, { label: "Unacked", number: true, cell: (row) => count(row.messages_unacknowledged) },
          { label: "Consumers", cell: (row) => row.consumers.map((each) => h("div", {}, text(Object.values(each)))) }], channels, { empty: "none" }));
    }
    await refresh();
    page.every(10000, refresh);
    const back = () => { location.hash = "#/connections"; };
    const whose = first.tenant || undefined;
    return h("div", {}, h("div", { class: "actions" },
      await actionButton({ method: "DELETE", template: "/connections/{connection}", names: { connection: name }, query: { tenant, reason: "closed in the console" }, button: "Close", title: `Close ${name}?`, about: "Its client is told, and may come back.", label: "Close", danger: true, done: back }),
      first.user && await actionButton({ method: "DELETE", template: "/connections", query: { tenant: whose, user: first.user, reason: "closed in the console" }, button: `Close all of ${first.user}`, title: `Close all connections of ${first.user}?`, about: "At every gateway that can be reached. The clients may come back; to keep a user out, disable it.", label: "Close all", danger: true, done: back })), holder);
  },
};
