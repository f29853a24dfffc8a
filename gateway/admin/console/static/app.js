// The console: who has signed in, which page is shown, what the keyboard does.

import { byCode, byLogin, byToken, get, hasKey, onSignedOut, signIn, signOut } from "./api.js";
import { freshId, h, replace } from "./dom.js";
import { PAGES } from "./pages.js";

const app = document.getElementById("app");
let me = null;
let shown = null;

// --- Dark and light --------------------------------------------------------------------------

const THEME = "weir.theme";
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}
setTheme(localStorage.getItem(THEME));
function turnTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  const wanted = now === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, wanted);
  setTheme(wanted);
}

// --- Signing in ------------------------------------------------------------------------------

function field(label, properties, help) {
  const id = freshId();
  return h("div", { class: "field" }, h("label", { for: id }, label), h("input", { id, ...properties }), help && h("p", { class: "help" }, help));
}

function signInPage(message) {
  leave();
  me = null;
  document.title = "Sign in · Weir";
  const wrong = h("p", { class: "wrong", role: "alert" }, message || "");
  const form = (title, fields, credentials) => {
    const go = h("button", { type: "submit", class: "primary" }, "Sign in");
    return h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        replace(wrong);
        try {
          me = await signIn(credentials(event.target.elements));
          start();
        } catch (error) {
          replace(wrong, error.message);
        } finally {
          go.disabled = false;
        }
      },
    }, h("h2", {}, title), fields, h("div", { class: "buttons" }, go));
  };
  replace(app, h("main", { class: "sign-in" },
    h("h1", {}, h("span", { class: "logo", "aria-hidden": "true" }), "Weir"),
    wrong,
    form("With a login", [
      field("Login", { name: "login", autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" }, "USER, or TENANT:USER, of somebody who administers the node or a tenant"),
      field("Password", { name: "password", type: "password", autocomplete: "current-password", required: true })],
    (elements) => byLogin(elements.login.value, elements.password.value)),
    form("With the admin token", [
      field("Token", { name: "token", type: "password", autocomplete: "off", required: true }, "It is in DATA/admin.token, as weir-data/admin.token. Or run `weir console`: the address it says signs you in.")],
    (elements) => byToken(elements.token.value))));
  app.querySelector("input").focus();
}

// --- Pages -----------------------------------------------------------------------------------

function leave() {
  if (shown) shown.leave();
  shown = null;
}

const tenantKept = "weir.tenant";
function tenantOf() {
  const kept = sessionStorage.getItem(tenantKept);
  if (me.tenants.includes(kept)) return kept;
  return me.tenants.includes(me.tenant) ? me.tenant : me.tenants[0];
}

function navigation(current) {
  const groups = [];
  for (const page of PAGES) {
    if (!page.group || (page.node && !me.administers_node) || (page.clustered && !me.in_cluster)) continue;
    let group = groups.find((each) => each.name === page.group);
    if (!group) groups.push(group = { name: page.group, pages: [] });
    group.pages.push(page);
  }
  return h("nav", { "aria-label": "Pages" }, groups.map((group) => h("div", { class: "group" },
    h("p", { class: "group-name" }, group.name),
    h("ul", {}, group.pages.map((page) => h("li", {}, h("a", { href: `#/${page.path}`, "aria-current": current === page.path || (current && current.parent === page.path) ? "page" : undefined }, page.label)))))));
}

function header() {
  const choose = h("select", {
    "aria-label": "Tenant",
    onchange: () => { sessionStorage.setItem(tenantKept, choose.value); route(); },
  }, me.tenants.map((name) => h("option", { value: name }, name)));
  choose.value = tenantOf();
  return h("div", { class: "top" },
    h("span", { class: "who" }, me.tenants.length > 1 ? h("label", { class: "tenant" }, h("span", {}, "Tenant"), choose) : h("span", {}, "Tenant ", h("b", {}, tenantOf()))),
    h("span", { class: "grow" }),
    h("span", { class: "faint user" }, me.tenant === "default" ? me.user : `${me.tenant}:${me.user}`),
    h("button", { type: "button", class: "quiet", onclick: turnTheme }, "Dark or light"),
    h("button", { type: "button", class: "quiet", onclick: keys, "aria-keyshortcuts": "?" }, "Keys"),
    h("button", { type: "button", class: "quiet", onclick: async () => { await signOut().catch(() => {}); signInPage(); } }, "Sign out"));
}

class Shown {
  constructor(page, params) {
    this.me = me;
    this.tenant = tenantOf();
    this.params = params;
    this.page = page;
    this.timers = [];
    this.alive = true;
  }

  /** Do something again and again while this page is shown and looked at. */
  every(ms, again) {
    this.timers.push(setInterval(async () => {
      if (document.hidden || this.busy || document.querySelector("dialog[open]")) return;
      this.busy = true;
      try {
        await again();
        this.note("");
      } catch (error) {
        this.note(error.message);
      } finally {
        this.busy = false;
      }
    }, ms));
  }

  note(message) {
    if (this.alive && this.noted) replace(this.noted, message);
  }

  leave() {
    this.alive = false;
    this.timers.forEach(clearInterval);
  }
}

async function route() {
  if (!me) return;
  const [where, search] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = where.split("/").map((each) => { try { return decodeURIComponent(each); } catch { return each; } });
  const page = PAGES.find((each) => each.path === (parts[0] || "overview") && (parts.length > 1) === Boolean(each.parameter)) || PAGES[0];
  leave();
  const mine = shown = new Shown(page, { name: parts.slice(1).join("/"), query: new URLSearchParams(search) });
  const title = page.parameter ? mine.params.name : page.label;
  document.title = `${title} · Weir`;
  mine.noted = h("p", { class: "wrong", role: "alert" });
  const heading = h("h1", { tabindex: "-1" }, page.parameter && page.parent ? [h("a", { href: `#/${page.parent}`, class: "up" }, PAGES.find((each) => each.path === page.parent && !each.parameter).label), " / "] : "", title);
  const content = h("div", { class: "content", "aria-busy": "true" }, h("p", { class: "faint" }, "Asking the server …"));
  const main = h("main", { id: "main" }, header(), heading, mine.noted, content);
  const menu = h("details", { class: "menu", open: matchMedia("(min-width: 60rem)").matches },
    h("summary", {}, h("span", { class: "logo", "aria-hidden": "true" }), "Weir"), navigation(page.parameter ? { parent: page.parent } : page.path));
  const keptScroll = page === route.last ? scrollY : 0;
  const moved = route.last !== undefined;
  route.last = page;
  replace(app, h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); heading.focus(); } }, "Skip to the page"), h("aside", {}, menu), main);
  if (moved) heading.focus({ preventScroll: true });
  scrollTo(0, keptScroll);
  try {
    const module = await page.load();
    const element = await module.default.show(mine);
    if (mine.alive) replace(content, element);
  } catch (error) {
    if (mine.alive) mine.note(error.message);
    replace(content, h("button", { type: "button", class: "quiet", onclick: () => route() }, "Try again"));
  }
  content.removeAttribute("aria-busy");
}

async function start() {
  if (location.hash.startsWith("#code=")) history.replaceState(null, "", "/");
  await route();
}

// --- Keyboard --------------------------------------------------------------------------------

function keys() {
  const close = h("button", { type: "button", class: "primary", onclick: () => box.close() }, "Close");
  const rows = [["/", "search in the table"], ["?", "these keys"], ["Esc", "close a dialog"],
    ...PAGES.filter((page) => page.key && !(page.node && !me.administers_node)).map((page) => [`g ${page.key}`, page.label])];
  const name = freshId();
  const box = h("dialog", { "aria-labelledby": name, onclose: () => box.remove() },
    h("h2", { id: name }, "Keys"), h("dl", { class: "keys" }, rows.map(([key, what]) => [h("dt", {}, key.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, what)])), h("div", { class: "buttons" }, close));
  document.body.append(box);
  box.showModal();
}

let leading = false;
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input, textarea, select, dialog");
  if (!me || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (leading) {
    leading = false;
    const page = PAGES.find((each) => each.key === event.key);
    if (page) location.hash = `#/${page.path}`;
  } else if (event.key === "g") leading = true;
  else if (event.key === "?") keys();
  else if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// --- Begin -----------------------------------------------------------------------------------

onSignedOut((message) => { if (me) signInPage(message); });
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) begin();
  else route();
});

async function begin() {
  const code = location.hash.startsWith("#code=") ? location.hash.slice(6) : null;
  if (code) history.replaceState(null, "", "/");
  try {
    if (code) me = await signIn(byCode(code));
    else if (hasKey()) me = await get("/console/session");
  } catch (error) {
    if (!(hasKey() && code)) return signInPage(error.status === 401 && !code ? "" : error.message);
    me = await get("/console/session").catch(() => null);
  }
  if (me) return start();
  return signInPage();
}

begin();
