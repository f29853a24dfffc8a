// Which pages there are. `node`: for who administers the node; `clustered`: in a cluster only;
// `parameter`: the rest of the address names what it is about; `key`: after `g`.

const file = (name) => () => import(`./page_${name}.js`);

export const PAGES = [
  { path: "overview", label: "Overview", group: "Messages", key: "o", load: file("overview") },
  { path: "topics", label: "Topics and queues", group: "Messages", key: "t", load: file("topics") },
  { path: "topics", label: "Topic", parent: "topics", parameter: "topic", load: file("topic") },
  { path: "routers", label: "Routers and routes", group: "Messages", key: "r", load: file("routers") },
  { path: "routers", label: "Router", parent: "routers", parameter: "router", load: file("router") },
  { path: "connections", label: "Connections", group: "Messages", key: "c", load: file("connections") },
  { path: "connections", label: "Connection", parent: "connections", parameter: "connection", load: file("connection") },
  { path: "sessions", label: "Kept sessions", group: "Messages", key: "d", load: file("sessions") },
  { path: "sessions", label: "Kept session", parent: "sessions", parameter: "session", load: file("session") },
  { path: "users", label: "Users and keys", group: "Access", key: "u", load: file("users") },
  { path: "policies", label: "Policies", group: "Access", key: "p", load: file("policies") },
  { path: "may", label: "May X do Y?", group: "Access", key: "m", load: file("may") },
  { path: "tenants", label: "Tenants and limits", group: "Access", key: "l", load: file("tenants") },
  { path: "cluster", label: "Cluster", group: "Server", key: "k", node: true, load: file("cluster") },
  { path: "bill", label: "Bill so far", group: "Server", key: "b", load: file("bill") },
  { path: "settings", label: "Settings", group: "Server", key: "s", node: true, load: file("settings") },
  { path: "events", label: "Live events", group: "Server", key: "e", node: true, load: file("events") },
];
