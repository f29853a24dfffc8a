// A chart of an hour: lines over time, with what they are at the point under the pointer.

import { h, replace, svg } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 600;
const HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;

/** A round number that is not less than a value. */
function ceiling(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * size).find((each) => each >= value);
}

// A gap of a minute or less is drawn over: what is surveyed seldom has a point only now and then.
const BRIDGED = 12;

function lineOf(values, x, y) {
  let drawn = "";
  let last = -Infinity;
  values.forEach((value, at) => {
    if (value === null) return;
    drawn += `${at - last > BRIDGED ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    last = at;
  });
  return drawn;
}

/**
 * A figure with a title and lines. `lines`: [{label, values, tone}]; `form` says a value; `history`:
 * {step_s, end_ms}.
 */
export function chart(title, lines, history, form) {
  const points = lines[0].values.length;
  const known = lines.flatMap((line) => line.values).filter((value) => value !== null);
  const top = ceiling(Math.max(0, ...known));
  const x = (at) => LEFT + ((WIDTH - LEFT - 4) * at) / (points - 1);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const at = (number) => history.end_ms - (points - 1 - number) * history.step_s * 1000;
  const last = (line) => line.values.findLast((value) => value !== null);
  const legend = h("div", { class: "legend", "aria-hidden": "true" });
  const tell = (number) => replace(
    legend,
    lines.map((line) => h("span", { class: `key ${line.tone}` }, line.label, " ",
      h("b", {}, form(number === null ? last(line) : line.values[number])))),
    h("span", { class: "when" }, number === null ? "" : time(at(number))),
  );
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const said = lines.map((line) => {
    const of = line.values.filter((value) => value !== null);
    return of.length ? `${line.label} now ${form(last(line))}, at most ${form(Math.max(...of))}` : `${line.label}: nothing yet`;
  });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", preserveAspectRatio: "none", "aria-label": `${title}, the last hour: ${said.join("; ")}` },
    [0, 0.5, 1].map((part) => svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 4, y1: y(top * part), y2: y(top * part) })),
    lines.map((line) => svg("path", { class: `line ${line.tone}`, d: lineOf(line.values, x, y) })),
    cursor,
  );
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const where = ((event.clientX - box.left) / box.width) * WIDTH;
    const number = Math.max(0, Math.min(points - 1, Math.round(((where - LEFT) / (WIDTH - LEFT - 4)) * (points - 1))));
    cursor.setAttribute("x1", x(number));
    cursor.setAttribute("x2", x(number));
    cursor.setAttribute("visibility", "visible");
    tell(number);
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    tell(null);
  });
  tell(null);
  return h("figure", { class: "chart" },
    h("figcaption", {}, title), legend,
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, [1, 0.5, 0].map((part) => h("span", {}, part === 0.5 && form(top / 2) === form(top) ? "" : form(top * part)))),
      picture),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", {}, "an hour ago"), h("span", {}, "now")));
}
