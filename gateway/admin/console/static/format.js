// Figures as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** A number in little room: 12.3K. */
export const compact = (value) =>
  value === null || value === undefined ? "–" : Math.abs(value) < 10000 ? whole.format(value) : short.format(value);

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? value.toFixed(1) : compact(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let power = 0;
  let rest = value;
  while (rest >= 1024 && power < UNITS.length - 1) {
    rest /= 1024;
    power += 1;
  }
  return `${power && rest < 100 ? rest.toFixed(1) : Math.round(rest)} ${UNITS[power]}`;
}

const PARTS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
/** A time span in seconds: 3 h 20 min. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const first = PARTS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = PARTS[first];
  const major = Math.floor(seconds / size);
  const next = PARTS[first + 1];
  const minor = next && major < 10 ? Math.floor((seconds % size) / next[1]) : 0;
  return minor ? `${major} ${unit} ${minor} ${next[0]}` : `${major} ${unit}`;
}

export const millis = (value) => (value === null || value === undefined ? "–" : span(value / 1000));

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
export const time = (ms) => clock.format(new Date(ms));
export const moment = (ms) => day.format(new Date(ms));

export const yes = (value) => (value ? "yes" : "no");
/** Any value in one line. */
export function text(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return yes(value);
  if (typeof value === "number") return count(value);
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) return value.join(", ") || "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The words of a name: message_ttl_ms -> message ttl ms. */
export const words = (name) => name.replaceAll("_", " ");
