// Which pages there are. `node`: for who administers the node; `parameter`: the rest of the address
// names what it is about; `key`: after `g`.

const file = (name) => () => import(`./page_${name}.js`);

export const PAGES = [
  { path: "overview", label: "Overview", group: "Messages", key: "o", load: file("overview") },
];
