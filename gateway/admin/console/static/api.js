// The admin API, as the console uses it: /api/v1 and nothing else.
//
// A session is a cookie that no script reads and a key that this origin keeps; every request shows
// both. The key is told once, when the session is opened.

const ROOT = "/api/v1";
const KEPT = "weir.key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let signedOut = () => {};
export const onSignedOut = (heard) => { signedOut = heard; };
export const hasKey = () => localStorage.getItem(KEPT) !== null;

/** A path of parts, each encoded: path`/topics/${name}`. */
export const path = (texts, ...names) =>
  texts.reduce((all, each, at) => all + encodeURIComponent(names[at - 1]) + each);

export async function call(method, where, { query = {}, body, authorization } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const url = ROOT + where + (given.length ? `?${new URLSearchParams(given)}` : "");
  const headers = {};
  if (authorization) headers.authorization = authorization;
  else headers["x-weir-key"] = localStorage.getItem(KEPT) || "";
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "same-origin", redirect: "error",
    });
  } catch {
    throw new ApiError(0, "the server does not answer");
  }
  const found = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (answer.ok || (where === "/health" && found && found.checks)) return found;
  const message = (found && found.error && found.error.message) || `status ${answer.status}`;
  if (answer.status === 401 && !authorization) {
    localStorage.removeItem(KEPT);
    signedOut(message);
  }
  throw new ApiError(answer.status, message);
}

export const get = (where, query) => call("GET", where, { query });

const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
export const byToken = (token) => `Bearer ${token.trim()}`;
export const byLogin = (login, password) => `Basic ${base64(`${login}:${password}`)}`;
export const byCode = (code) => `Code ${code}`;

/** Open a session with credentials; who it is. */
export async function signIn(authorization) {
  const me = await call("POST", "/console/session", { authorization });
  localStorage.setItem(KEPT, me.key);
  return me;
}

export async function signOut() {
  try {
    await call("DELETE", "/console/session");
  } finally {
    localStorage.removeItem(KEPT);
  }
}

let told = null;
/** What the API of this process can do, as it tells itself (OpenAPI 3.1). */
export async function description() {
  if (told === null) told = await get("/openapi.json");
  return told;
}

/** The operation of a method and a path with {names}, or undefined if this process has none. */
export async function operation(method, template) {
  const found = await description();
  return found.paths[template] && found.paths[template][method.toLowerCase()];
}
