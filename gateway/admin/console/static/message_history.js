// What has become of one message of a traced topic, and who had a part in it.

import { get, path } from "./api.js";
import { h, replace } from "./dom.js";
import { moment, words } from "./format.js";
import { plainTable } from "./table.js";

const PAGES_MAX = 20;
// By which the clock of a publisher's gateway may be ahead of the log's.
const SLACK_MS = 600_000;

/** By whom: a user with where it is connected, or, of what a leader has noted, the protocol. */
const byWhom = ({ by, protocol }) => (by
  ? [by.user, " of ", by.tenant, " over ", by.protocol, by.address && ` from ${by.address}`, by.connection && h("div", { class: "faint" }, by.connection)]
  : h("span", { class: "faint" }, protocol));

const table = (events) => plainTable("History of the message", [
  { label: "When", cell: (row) => moment(row.time_ms) },
  { label: "What", cell: (row) => [words(row.what), row.reason && h("div", { class: "faint" }, row.reason), row.uid && h("div", { class: "faint mono" }, row.uid)] },
  { label: "Group", cell: (row) => row.group ?? "" },
  { label: "By", cell: byWhom },
  { label: "Until", cell: (row) => (row.until_ms === null ? "" : moment(row.until_ms)) },
  { label: "Noted by", cell: (row) => row.process }], events);

/** A button that shows it; `message`: as it was peeked at. */
export function historyOf(message, topic, tenant) {
  const found = h("div", { role: "status" });
  async function look() {
    const events = [];
    let query = { tenant, queue: message.queue, at: message.offset, since_ms: Math.max(0, message.published_ms - SLACK_MS) };
    try {
      for (let page = 0; query !== null && page < PAGES_MAX; page += 1) {
        const told = await get(path`/topics/${topic}/history/${message.uid}`, query);
        events.push(...told.events);
        query = told.next === null ? null : { ...query, since_ms: undefined, offset: told.next };
      }
      events.sort((one, other) => one.time_ms - other.time_ms);
      replace(found,
        events.length ? table(events) : h("p", { class: "note" }, "Nothing is noted of it, or not yet: the topic was not traced, or this is no message of the sample. What is noted is written once a second."),
        query !== null && h("p", { class: "note" }, "There is more: weir message trace shows all of it."));
    } catch (error) {
      replace(found, error.message);
    }
  }
  return h("section", {}, h("button", { type: "button", class: "quiet", onclick: look }, "History"), found);
}
