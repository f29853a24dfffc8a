// May X do Y? The server decides as it does when a client asks, and says by which rule.

import { get } from "./api.js";
import { freshId, h, replace } from "./dom.js";

const ACTIONS = ["publish", "consume", "configure", "inspect", "administer"];
const KINDS = ["topic", "router", "tree", "group", "tenant", "node", "client"];

function field(label, input) {
  const id = freshId();
  input.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), input);
}

export default {
  async show(page) {
    const answer = h("div", { role: "status" });
    const user = h("input", { required: true, autocomplete: "off", spellcheck: "false", "data-search": true });
    const action = h("select", {}, ACTIONS.map((each) => h("option", { value: each }, each)));
    const kind = h("select", {}, KINDS.map((each) => h("option", { value: each }, each)));
    const name = h("input", { autocomplete: "off", spellcheck: "false" });
    const client = h("input", { autocomplete: "off", spellcheck: "false" });
    const form = h("form", {
      class: "row",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const told = await get("/access", { tenant: page.tenant, user: user.value, action: action.value, kind: kind.value, name: name.value, client_id: client.value });
          replace(answer, h("div", { class: `verdict ${told.allowed ? "good" : "bad"}` },
            h("strong", {}, told.allowed ? "Yes: " : "No: "), told.reason,
            told.rule && [". Rule ", told.rule_number, " of the policy ", h("b", {}, told.policy), ": ", h("code", {}, told.rule)]));
        } catch (error) {
          replace(answer, h("div", { class: "verdict bad" }, error.message));
        }
      },
    }, field("May the user", user), field("do", action), field("with the", kind), field("of the name", name), field("by the client id (if any)", client), h("button", { type: "submit", class: "primary" }, "Ask"));
    return h("div", {}, h("p", { class: "about" }, `Users of the tenant ${page.tenant}.`), form, answer);
  },
};
