// Stores, groups with their leaders, gateways; of a process by itself the levels of its log.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, millis, text, words } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";

/** How fast copies of groups are, and what says so. */
function copies(status) {
  const bound = (rate) => (rate ? `${bytes(rate)} a second` : "all they can get");
  if (status.copy_rate !== null) return `Copies of groups take ${bound(status.copy_rate)} of each store, as was set while the cluster runs.`;
  const known = status.nodes.filter((store) => store.copy_setting !== null);
  if (!known.length) return "Copies of groups take what each store's settings say.";
  const alike = known.every((store) => store.copy_setting === known[0].copy_setting);
  return alike
    ? `Copies of groups take ${bound(known[0].copy_setting)} of each store, by its settings.`
    : `Copies of groups take what each store's settings say: ${known.map((store) => `store ${store.number} ${bound(store.copy_setting)}`).join("; ")}.`;
}

const rowsOf = (features) => Object.values(features).find(Array.isArray) || [];

export default {
  async show(page) {
    const holder = h("div");
    const enable = await actionButton({ method: "POST", template: "/cluster/features", button: "Turn on levels", title: "Turn on feature levels", about: "Without a name, all. What is on stays on: builds of before cannot be gone back to.", label: "Turn on", quiet: true, done: () => refresh() });
    const drain = { method: "POST", template: "/cluster/gateways/{name}/drain", only: [], quiet: true, done: () => refresh() };
    async function refresh() {
      const features = rowsOf(await get("/cluster/features"));
      const names = features.length ? Object.keys(features[0]) : [];
      const parts = [];
      if (page.me.in_cluster) {
        const status = await get("/cluster");
        const { gateways } = await get("/cluster/gateways");
        const stores = await Promise.all(status.nodes.map(async (store) => ({ ...store, actions: await actionButton({ method: "DELETE", template: "/cluster/stores/{number}", names: { number: store.number }, button: "Take out", title: `Take store ${store.number} out?`, label: "Take out", danger: true, done: refresh }) })));
        const groups = await Promise.all(status.groups.map(async (group) => ({ ...group, actions: h("div", { class: "actions" },
          await actionButton({ method: "POST", template: "/cluster/groups/{group}/transfer", names: { group: group.group }, button: "Transfer", title: `Another leader for group ${group.group}`, label: "Transfer", quiet: true, done: refresh }),
          await actionButton({ method: "POST", template: "/cluster/groups/{group}/move", names: { group: group.group }, button: "Move", title: `Move a replica of group ${group.group}`, label: "Move", quiet: true, done: refresh })) })));
        const served = await Promise.all(gateways.map(async (gateway) => ({ ...gateway, actions: h("div", { class: "actions" },
          gateway.stage === "serving"
            ? await actionButton({ ...drain, names: { name: gateway.name }, button: "Drain", title: `Drain ${gateway.name}`, about: "Its clients are asked to use other gateways, and no new one is sent to it, until it is told to take clients again.", label: "Drain" })
            : await actionButton({ ...drain, names: { name: gateway.name }, always: { undo: true }, button: "Take clients", title: `Have ${gateway.name} take clients again?`, label: "Take clients" })) })));
        parts.push(h("h2", {}, `Stores of ${status.name}`), plainTable("Stores", [
          { label: "Store", cell: (row) => row.number }, { label: "State", cell: (row) => [row.state, !row.answers && h("span", { class: "badge bad" }, "does not answer"), !row.accepting && row.answers && h("span", { class: "badge warn" }, "refuses")] },
          { label: "Address", cell: (row) => row.address }, { label: "Version", cell: (row) => row.version }, { label: "Up", number: true, cell: (row) => millis(row.uptime_ms) },
          { label: "Leads", number: true, cell: (row) => count(row.leads) }, { label: "Lag", number: true, cell: (row) => count(row.lag) }, { label: "", cell: (row) => row.actions }], stores),
        h("div", { class: "actions" }, h("h2", {}, "Raft groups"), await actionButton({ method: "POST", template: "/cluster/rebalance", button: "Spread leaders", title: "Spread leaders over the stores", label: "Spread", quiet: true, done: refresh })),
        plainTable("Raft groups", [
          { label: "Group", cell: (row) => row.group }, { label: "Leader", cell: (row) => (row.leader ? `store ${row.leader}` : h("span", { class: "badge bad" }, "none")) },
          { label: "Term", number: true, cell: (row) => count(row.term) }, { label: "Commit", number: true, cell: (row) => count(row.commit) },
          { label: "Replicas", cell: (row) => row.replicas.map((each) => `${each.node}${each.voter ? "" : " (learns)"}${each.lag ? `, ${count(each.lag)} behind` : ""}`).join("; ") },
          { label: "Moving", cell: (row) => row.moving || "–" }, { label: "", cell: (row) => row.actions }], groups),
        h("p", { class: "calm" }, copies(status)),
        h("h2", {}, "Gateways"), plainTable("Gateways", [
          { label: "Gateway", cell: (row) => row.name },
          { label: "What it says", cell: (row) => Object.entries(row).filter(([name]) => !["name", "actions"].includes(name)).map(([name, value]) => h("div", {}, `${words(name)}: ${text(value)}`)) },
          { label: "", cell: (row) => row.actions }], served, { empty: "No gateway has said anything." }));
      } else {
        parts.push(h("p", { class: "calm" }, "This is `weir serve`: gateway and store in one process, which belongs to no cluster."));
      }
      replace(holder, parts, h("div", { class: "actions" }, h("h2", {}, "Feature levels"), enable),
        plainTable("Feature levels", names.map((name) => ({ label: words(name), cell: (row) => text(row[name]) })), features));
    }
    await refresh();
    page.every(10000, refresh);
    return holder;
  },
};
