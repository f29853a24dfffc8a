// Tables: dense, sorted and paged by the server.

import { h, replace } from "./dom.js";

/** A table of rows that are all here. `columns`: [{name, label, cell(row), number, sort}]. */
export function plainTable(caption, columns, rows, { sort, onsort, empty } = {}) {
  const heads = columns.map((column) => {
    const is = sort && sort.replace(/^-/, "") === column.sort;
    const inside = column.sort && onsort
      ? h("button", { type: "button", onclick: () => onsort(is && sort[0] !== "-" ? `-${column.sort}` : is || !column.number ? column.sort : `-${column.sort}`) },
        column.label, h("span", { "aria-hidden": "true", class: "arrow" }, is ? (sort[0] === "-" ? "▼" : "▲") : ""))
      : column.label || h("span", { class: "unseen" }, "Actions");
    const order = is ? (sort[0] === "-" ? "descending" : "ascending") : undefined;
    return h("th", { scope: "col", class: column.number && "number", "aria-sort": order }, inside);
  });
  const body = rows.map((row) => h("tr", {}, columns.map((column, at) =>
    h(at ? "td" : "th", { scope: at ? undefined : "row", class: column.number && "number", "data-label": column.label }, column.cell(row)))));
  const none = h("tr", {}, h("td", { colspan: columns.length, class: "none" }, empty || "nothing here"));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body.length ? body : none)));
}

/**
 * A table that asks the server for each page. `ask({search, sort, after, limit})` gives {rows, next,
 * total}. Gives {element, refresh}.
 */
export function pagedTable(caption, columns, ask, { sort = "", search = true, empty, tools = [], limit = 50 } = {}) {
  const state = { sort, search: "", pages: [""] };
  const holder = h("div", { class: "rows" });
  const note = h("p", { class: "note", role: "status" });
  const back = h("button", { type: "button", class: "quiet", onclick: () => { state.pages.pop(); refresh(); } }, "Previous");
  const on = h("button", { type: "button", class: "quiet", onclick: () => { state.pages.push(state.next); refresh(); } }, "Next");
  let waiting = 0;
  let asked = 0;
  const field = h("input", {
    type: "search", placeholder: "Search", "aria-label": `Search ${caption.toLowerCase()}`, class: "search", "data-search": true, autocomplete: "off",
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { state.search = field.value; state.pages = [""]; refresh(); }, 200);
    },
  });
  async function refresh() {
    const number = ++asked;
    const found = await ask({ search: state.search, sort: state.sort, after: state.pages.at(-1), limit });
    if (number !== asked) return;
    state.next = found.next;
    const focused = holder.contains(document.activeElement) && document.activeElement.closest("th");
    const column = focused ? [...focused.parentNode.children].indexOf(focused) : -1;
    replace(holder, plainTable(caption, columns, found.rows, {
      sort: state.sort, empty: state.search && search ? "Nothing matches." : empty, onsort: (wanted) => { state.sort = wanted; state.pages = [""]; refresh(); },
    }));
    if (column >= 0) holder.querySelectorAll("thead th")[column]?.querySelector("button")?.focus();
    back.disabled = state.pages.length < 2;
    on.disabled = !found.next;
    const page = state.pages.length > 1 ? `page ${state.pages.length}` : "";
    const total = found.total === undefined ? "" : `${found.total.toLocaleString("en-US")} in all`;
    note.textContent = [page, total].filter(Boolean).join(", ");
  }
  const element = h("section", { class: "paged" },
    h("div", { class: "tools" }, search && field, h("span", { class: "grow" }), tools),
    holder, h("div", { class: "pager" }, note, h("span", { class: "grow" }), back, on));
  return { element, refresh };
}
