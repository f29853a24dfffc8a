// What has been counted for the bill, and what it comes to.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { count, moment, span, text, words } from "./format.js";
import { actionButton } from "./forms.js";
import { plainTable } from "./table.js";
import { tile } from "./page_overview.js";

const thisMonth = () => new Date().toISOString().slice(0, 7);

function invoice({ tenant, currency, total, lines }) {
  return h("section", { class: "card" },
    h("h3", {}, `${tenant}: ${total} ${currency}`),
    plainTable(`Invoice of ${tenant}`, [
      { label: "What", cell: (row) => row.title }, { label: "Quantity", number: true, cell: (row) => count(Number(row.quantity)) },
      { label: "Price", number: true, cell: (row) => `${Number(row.unit_price)} for ${count(Number(row.per))}` },
      { label: "Amount", number: true, cell: (row) => row.amount }], lines, { empty: "Nothing that has a price." }));
}

function told(bill, node) {
  if (bill.state === "none") return h("p", { class: "faint" }, node ? "Nothing has been worked out yet since this process began." : "Nothing has been worked out yet: who runs this server begins it.");
  if (bill.state === "running") return h("p", { role: "status" }, `The bill of ${bill.period} is being worked out.`);
  if (bill.state === "failed") return h("p", { class: "wrong", role: "status" }, `The bill of ${bill.period} was not worked out: ${bill.reason}`);
  const notes = [`As of ${moment(bill.began_ms)}, by the price book ${bill.price_book}. These are drafts, and no invoices.`];
  if (bill.is_own_price_book) notes.push("No price book is set (node.metering.price_book): this is the one that comes with Weir, and its prices are made up.");
  if (!bill.is_whole_month) notes.push("The month has not ended: what is served until then is still to come.");
  if (bill.unpriced.length) notes.push(`Used, and without a price: ${bill.unpriced.join(", ")}.`);
  if (bill.left_out) notes.push(node ? `${count(bill.left_out)} more are not shown: their tables are in the data directory.` : "Not every tenant's is shown here: ask who runs this server for yours.");
  return [
    notes.map((note) => h("p", { class: "note" }, note)),
    bill.problems.map((problem) => h("p", { class: "wrong" }, `Problem: ${problem}`)),
    bill.invoices.length ? bill.invoices.map(invoice) : !bill.left_out && h("p", {}, `Nothing that has a price was used in ${bill.period}.`),
  ];
}

/** What this process has counted, which only who administers the node is told. */
async function counts() {
  const { state, age_us: age, rows_flushed: flushed, rows_waiting: waiting, over_limit: over, ...others } = await get("/metering");
  return [
    h("h2", {}, "Counted"),
    h("div", { class: "tiles" },
      tile("Metering", state, over ? "of this process: more waits than it may keep" : "of this process", over ? "bad" : ""),
      tile("Rows counted", count(flushed), "in the log"),
      tile("Rows waiting", count(waiting), "for their flush"),
      tile("Oldest count", span(age / 1e6), "that is in no log yet")),
    h("dl", { class: "facts" }, Object.entries(others).map(([name, value]) => [h("dt", {}, words(name)), h("dd", {}, typeof value === "number" ? count(value) : text(value))])),
  ];
}

export default {
  async show(page) {
    const node = page.me.administers_node;
    const counted = h("section");
    const priced = h("section");
    async function refresh() {
      if (node) replace(counted, await counts());
      replace(priced, h("h2", {}, "So far"), told(await get("/metering/bill", node ? {} : { tenant: page.tenant }), node));
    }
    await refresh();
    page.every(5000, refresh);
    return h("div", {},
      h("p", { class: "about" }, "What is counted is priced by the billing jobs, as `weir bill --period YYYY-MM` does", node ? ": some seconds of a core, beside the server." : "."),
      node && h("div", { class: "actions" },
        await actionButton({ method: "POST", template: "/metering/bill", given: { period: thisMonth() }, button: "Work out a month", title: "Work out a month", label: "Begin", done: refresh }),
        await actionButton({ method: "POST", template: "/metering/export", button: "Export now", title: "Export what was counted", label: "Export", done: refresh, told: (made) => h("p", {}, `${count(made.rows)} rows in ${count(made.files)} files, in ${made.directory}.`) })),
      priced, counted);
  },
};
