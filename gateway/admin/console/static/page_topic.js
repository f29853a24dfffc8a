// One topic: the last hour, its groups with their lag, its messages, and what can be done with it.

import { description, get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, millis, moment, text, words } from "./format.js";
import { actionButton, dialog } from "./forms.js";
import { historyOf } from "./message_history.js";
import { charts } from "./page_overview.js";
import { plainTable } from "./table.js";

const RATES = [["published", "published", "one"], ["done", "done with", "three"]];
const DEPTH = [["ready", "ready", "one"], ["leased", "in flight", "two"]];

const again = () => dispatchEvent(new Event("hashchange"));
const SEEK = "/topics/{topic}/groups/{group}/seek";

// What has a button of its own, with words of its own. Every other operation below a topic, or a
// group of it, that the API tells of gets a button too.
const KNOWN = {
  "/topics/{topic}/messages": { button: "Send a message", title: "Send a message", label: "Send", told: (sent) => h("p", {}, sent.queue === null ? "Sent." : `Stored at offset ${sent.offset} of queue ${sent.queue}.`) },
  "/topics/{topic}/purge": { button: "Purge", danger: true, label: "Purge", told: (done) => h("p", {}, `${count(done.messages)} messages dropped.`) },
  "/topics/{topic}/groups": { button: "New group", title: "New group", label: "Create", quiet: true },
  "/topics/{topic}/resize": { button: "Resize", label: "Resize", quiet: true },
  [SEEK]: {
    button: "Replay", label: "Replay", quiet: true, title: "Replay, or skip",
    about: "The group goes on from elsewhere, and whoever consumes for it gets that: what it has had since then comes again, in every consumer, and what is skipped never does. Other groups are not touched. Say one of: to (all that is kept, or only what comes from now on), a time, or an offset (with its queue, if there are several). Nobody may be consuming for the group meanwhile.",
    told: (sought) => h("p", {}, `The group goes on with ${sought.queues.map((each) => `offset ${count(each.offset)} of queue ${each.queue}`).join(", ")}.`),
  },
  "/topics/{topic}/moves": {
    button: "Move or redrive", label: "Begin", quiet: true, title: "Move messages, or redrive dead letters",
    about: "What is ready for a group goes to another topic, and is gone for this group alone. Without a topic to go to, each dead letter goes back to the topic that it came from.",
    told: () => h("p", {}, "It has begun; how far it is stands below the groups."),
  },
};
const FOR_PROGRAMS = new Set(["/topics/{topic}/groups/{group}/receive", "/topics/{topic}/groups/{group}/settle"]);

const ABOVE = { serve: "are served", wait: "wait", fail: "are refused at once" };
const aSecond = (size) => [size.messages && `${count(size.messages)} messages`, size.bytes && bytes(size.bytes)].filter(Boolean).join(", ");

const said = (answer) => answer && h("pre", {}, JSON.stringify(answer, null, 1));

async function actionsBelow(prefix, names, query, given, done, without = []) {
  const { paths } = await description();
  const found = Object.keys(paths).filter((each) => each.startsWith(prefix) && paths[each].post && !FOR_PROGRAMS.has(each) && !without.includes(each) &&
    [...each.matchAll(/\{(\w+)\}/g)].every(([, name]) => name in names));
  return Promise.all(found.map((template) => actionButton({
    method: "POST", template, names, query, given, done, told: said, quiet: true,
    button: words(template.split("/").at(-1)), title: words(template.split("/").at(-1)), ...KNOWN[template],
  })));
}

/** Of a work topic nothing can be replayed, and that is said where one looks for it. */
const noReplay = (group) => h("button", { type: "button", class: "quiet", onclick: () => dialog({
  title: "Nothing to replay",
  about: `This is a work topic: what ${group} has acked is gone, and does not come again. What it has not acked comes again by itself, and what has become a dead letter can be redriven from the topic of dead letters. A stream keeps its messages: there a group can be replayed.`,
}) }, "Replay");

async function actionsOf(topic, group, query, done) {
  const names = { topic: topic.name, group: group.name };
  const isStream = topic.options.kind === "stream";
  return h("div", { class: "actions" },
    await actionsBelow("/topics/{topic}/groups/{group}/", names, query, {}, done, isStream ? [] : [SEEK]),
    !isStream && noReplay(group.name),
    await actionButton({ method: "PATCH", template: "/topics/{topic}/groups/{group}", names, query, given: group.options, button: "Change", title: `Change ${group.name}`, label: "Change", quiet: true, done }),
    await actionButton({ method: "DELETE", template: "/topics/{topic}/groups/{group}", names, query, button: "Delete", title: `Delete the group ${group.name}?`, label: "Delete", danger: true, done }));
}

/** Messages on their way to another topic: the newest first, while there are any. */
async function movesOf(topic, query, done) {
  const { moves } = await get(path`/topics/${topic}/moves`, query);
  if (!moves.length) return null;
  const rows = await Promise.all(moves.map(async (move) => ({ ...move, cancel: move.state === "running" && await actionButton({
    method: "DELETE", template: "/topics/{topic}/moves/{task}", names: { topic, task: move.id }, query, button: "Stop", title: "Stop the move?", about: "What was moved stays moved.", label: "Stop", danger: true, done }) })));
  return [h("h2", {}, "Moves"), plainTable("Moves", [
    { label: "To", cell: (row) => row.to ?? "where each came from" }, { label: "Of group", cell: (row) => row.group },
    { label: "Moved", number: true, cell: (row) => `${count(row.moved)} of ${count(row.to_move)}` },
    { label: "State", cell: (row) => [row.state, row.failure && h("span", { class: "badge bad" }, row.failure)] },
    { label: "", cell: (row) => row.cancel }], rows)];
}

function groupsOf(topic, actions) {
  return plainTable("Groups", [
    { label: "Group", cell: (row) => row.name },
    { label: "Lag", number: true, cell: (row) => count(row.ready + row.leased + row.delayed) },
    { label: "Ready", number: true, cell: (row) => count(row.ready) },
    { label: "In flight", number: true, cell: (row) => count(row.leased) },
    { label: "Delayed", number: true, cell: (row) => count(row.delayed) },
    { label: "Oldest", number: true, cell: (row) => millis(row.oldest_age_ms) },
    { label: "Consumers", number: true, cell: (row) => count(row.consumers) },
    { label: "Expired", number: true, cell: (row) => count(row.expired) },
    { label: "", cell: (row) => actions.get(row.name) },
  ], topic.groups, { empty: "No group consumes from it yet." });
}

const facts = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, text(value))]));

// What clients of each protocol read in a message: the message contract (docs/design/model.md).
const VIEWS = {
  amqp: (each) => [["routing key, exchange", "as published, else the default exchange"], ["message_id", each.message_id], ["delivery_mode", 2], ["priority", each.priority], ["expiration", each.ttl_ms || undefined], ["headers", each.attributes]],
  sqs: (each) => [["MessageId", each.uid], ["MessageGroupId", each.ordering_key], ["MessageDeduplicationId", each.deduplication_id], ["SentTimestamp", each.published_ms], ["MessageAttributes", each.attributes]],
  mqtt: (each) => [["payload", `${each.size_bytes} bytes with properties`], ["message expiry", each.ttl_ms ? Math.round(each.ttl_ms / 1000) : undefined], ["user properties", each.attributes]],
  rocketmq: (each) => [["messageId", each.message_id || each.uid], ["tag", each.tag], ["keys", each.keys], ["messageGroup", each.ordering_key], ["bornTimestamp", each.published_ms], ["properties", each.attributes]],
};

function messageOf(each, protocols, topic, tenant) {
  const body = each.body ?? each.body_base64 ?? "";
  return h("details", { class: "message" },
    h("summary", {}, h("span", { class: "mono" }, `${each.queue}:${each.offset}`), "  ", moment(each.published_ms), "  ", h("span", { class: "faint" }, `${bytes(each.size_bytes)}, by ${each.writer}`), "  ", body.slice(0, 80)),
    h("pre", { tabindex: "0", "aria-label": "Body" }, each.body === undefined ? `Base64, it is not text:\n${body}` : body),
    facts([["id", each.uid], ["attributes", each.attributes], ["ordering key", each.ordering_key], ["priority", each.priority || undefined], ["delay", each.delay_ms ? millis(each.delay_ms) : undefined], ["dead letters", each.dead_letters]]),
    h("div", { class: "views" }, protocols.filter((name) => VIEWS[name]).map((name) => h("section", {}, h("h3", {}, `As ${name} has it`), facts(VIEWS[name](each))))),
    historyOf(each, topic, tenant));
}

function peeking(topic, tenant, protocols) {
  const list = h("div", { class: "sheet" });
  const note = h("p", { class: "note", role: "status" });
  const queue = h("select", { "aria-label": "Queue" }, h("option", { value: "" }, "all queues"), topic.queues.map((each) => h("option", { value: each.number }, `queue ${each.number}`)));
  const offset = h("input", { type: "number", min: 0, placeholder: "from offset", "aria-label": "From offset" });
  let next = null;
  const look = async (on) => {
    try {
      const where = on
        ? { [queue.value ? "queue" : "from_queue"]: next[0], offset: next[1] }
        : { queue: queue.value, offset: offset.value };
      const found = await get(path`/topics/${topic.name}/messages`, { tenant, limit: 20, ...where });
      if (!on) list.replaceChildren();
      list.append(...found.messages.map((each) => messageOf(each, protocols, topic.name, tenant)));
      next = found.next;
      more.hidden = !next;
      replace(note, list.childElementCount ? "Nothing is leased or counted by looking." : "No message is stored there.");
    } catch (error) {
      replace(note, error.message);
    }
  };
  const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => look(true) }, "More");
  return h("section", {}, h("h2", {}, "Messages"),
    h("div", { class: "tools" }, queue, offset, h("button", { type: "button", onclick: () => look(false) }, "Peek")), list, note, more);
}

export default {
  async show(page) {
    const { tenant, params: { name } } = page;
    const names = { topic: name };
    const query = { tenant };
    const where = path`/topics/${name}`;
    const top = h("div");
    let groupActions = new Map();
    let known = null;
    async function refresh() {
      const topic = await get(where, query);
      const history = await get("/history", { tenant, topic: name });
      const now = topic.groups.map((each) => each.name).join("\n");
      const changed = known !== now;
      if (changed) {
        known = now;
        groupActions = new Map(await Promise.all(topic.groups.map(async (group) => [group.name, await actionsOf(topic, group, query, refresh)])));
      }
      const moves = await movesOf(name, query, refresh);
      const focused = top.contains(document.activeElement) && document.activeElement.closest(".actions");
      if (changed || !focused) { // a group that was deleted goes, its button too
        replace(top,
          charts(history, DEPTH, RATES),
          h("h2", {}, "Groups"), groupsOf(topic, groupActions), moves);
      }
      return topic;
    }
    const topic = await refresh();
    page.every(5000, refresh);
    const protocols = page.me.administers_node ? Object.keys((await get("/node")).connections) : Object.keys(VIEWS);
    const shown = Object.entries(topic.options).map(([key, value]) => [words(key), value]);
    if (topic.trace !== "off") shown.unshift(["traced", topic.trace === "all" ? "all messages" : "one message in 100"]);
    if (topic.size) shown.unshift(["size", `from ${aSecond(topic.size.min)} to ${aSecond(topic.size.max)} a second, now ${aSecond(topic.size.now)}`], ["publishers above", ABOVE[topic.size.above]]);
    const size = { template: "/topics/{topic}/size", names, query };
    const actions = h("div", { class: "actions" },
      await actionsBelow("/topics/{topic}/", names, query, {}, refresh),
      await actionButton({ ...size, method: "PUT", button: "Size", title: "Have it grow and shrink by itself", label: "Set", quiet: true, given: topic.size ?? {}, done: again }),
      topic.size && await actionButton({ ...size, method: "DELETE", button: "Keep its queues", title: "Have it keep the queues it has?", label: "Keep", quiet: true, done: again }),
      topic.options.durable && await actionButton({ method: "PUT", template: "/topics/{topic}/trace", names, query, button: "Trace", title: "Have what becomes of messages written down", label: "Set", quiet: true, given: { mode: topic.trace }, done: again }),
      await actionButton({ method: "PATCH", template: "/topics/{topic}", names, query, button: "Change", title: "Change settings", label: "Change", quiet: true, given: topic.options }),
      await actionButton({ method: "DELETE", template: "/topics/{topic}", names, query, button: "Delete", title: `Delete ${name}?`, about: "The topic and all its messages go, in every group and for every protocol.", label: "Delete", danger: true, done: () => { location.hash = "#/topics"; } }));
    return h("div", {},
      h("p", { class: "faint" }, `${topic.type}, ${topic.options.durable ? "durable" : "transient"}, ${topic.queues.length} ${topic.queues.length === 1 ? "queue" : "queues"}`,
        topic.unspelled_by.length ? `; cannot be named by ${topic.unspelled_by.join(", ")}` : ""),
      actions, top, peeking(topic, tenant, protocols),
      h("section", {}, h("h2", {}, "Queues"), plainTable("Queues", [
        { label: "Queue", cell: (row) => row.number }, { label: "Raft group", number: true, cell: (row) => row.raft_group },
        { label: "First offset", number: true, cell: (row) => count(row.first_offset) }, { label: "Next offset", number: true, cell: (row) => count(row.next_offset) },
        { label: "Kept", number: true, cell: (row) => count(row.next_offset - row.first_offset) }, { label: "State", cell: (row) => (row.sealed ? "sealed" : "") }], topic.queues)),
      h("section", {}, h("h2", {}, "Settings"), facts(shown)));
  },
};

