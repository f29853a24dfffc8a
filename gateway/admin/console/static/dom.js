// Elements made of values. Whatever comes from the server becomes text or an attribute's value:
// nothing here reads markup, and the browser is told to refuse it (Trusted Types).

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else if (name === "href" && !String(value).startsWith("#")) continue;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

export function put(element, children) {
  for (const each of [children].flat(Infinity)) {
    if (each === undefined || each === null || each === false) continue;
    element.append(each instanceof Node ? each : document.createTextNode(String(each)));
  }
}

/** An HTML element: h("a", {href: "#/topics"}, "Topics"). Links lead within the console only. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Put children in the place of what is there. */
export function replace(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

let names = 0;
/** A name for `id` that no other element has. */
export const freshId = () => `n${++names}`;
