// What happens, as it happens.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { text, words } from "./format.js";

const SHOWN_MAX = 500;
const TONE = { warning: "warn", error: "bad", critical: "bad" };

export default {
  async show(page) {
    const list = h("tbody");
    const note = h("p", { class: "note", role: "status" });
    const search = h("input", { type: "search", class: "search", placeholder: "Only lines with", "aria-label": "Only lines with", "data-search": true, oninput: () => { for (const row of list.children) row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase()); } });
    let after = 0;
    let lost = 0;
    const add = (each) => {
      const row = h("tr", {}, h("th", { scope: "row", class: "mono", "data-label": "Time" }, each.time.slice(11, 19)),
        h("td", { "data-label": "Level" }, h("span", { class: `badge ${TONE[each.level] || ""}` }, each.level)), h("td", { "data-label": "Event" }, each.event),
        h("td", { "data-label": "Facts" }, Object.entries(each.facts).map(([name, value]) => `${words(name)}: ${text(value)}`).join(", ")));
      row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
      list.prepend(row);
    };
    async function refresh() {
      for (;;) {
        const found = await get("/events", { after, limit: 1000 });
        lost += after ? found.lost : 0;
        found.events.slice(-SHOWN_MAX).forEach(add);
        after = found.next;
        if (found.events.length < 1000) break;
      }
      while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
      replace(note, `The last ${list.childElementCount}, newest first.`, lost ? ` ${lost} were missed.` : "");
    }
    await refresh();
    page.every(1500, refresh);
    return h("div", {}, h("div", { class: "tools" }, search), note,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events" }, h("table", {}, h("caption", { class: "unseen" }, "Events"), h("thead", {}, h("tr", {}, ["Time", "Level", "Event", "Facts"].map((each) => h("th", { scope: "col" }, each)))), list)));
  },
};
