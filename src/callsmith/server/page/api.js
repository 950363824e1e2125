// Requests to the server this page comes from, with the key of whoever sits here.

import { forLong, forTheTab } from "./memory.js";

const KEY = "callsmith.key";

export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export const currentKey = () => forTheTab.getItem(KEY) || forLong.getItem(KEY) || "";

export function setKey(key, remember) {
  forTheTab.removeItem(KEY);
  forLong.removeItem(KEY);
  if (key) (remember ? forLong : forTheTab).setItem(KEY, key);
}

let askForKey = async () => "";
let asking = null;

// What is called when the server wants a key; its promise is fulfilled when there is one.
export function onKeyNeeded(ask) {
  askForKey = ask;
}

async function send(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = currentKey();
    const headers = { accept: "application/json" };
    if (key) headers.authorization = `Bearer ${key}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    if (response.ok) return response;
    const error = await readError(response);
    if (error.status !== 401) throw error;
    if (key === currentKey()) {
      asking ??= askForKey(error.message).finally(() => (asking = null));
      await asking;
    }
  }
}

async function readError(response) {
  let message = `the server answered with status ${response.status} and did not say why`;
  let code = "";
  try {
    const { error } = await response.json();
    message = (typeof error === "string" ? error : error?.message) || message;
    code = error?.code || "";
  } catch {
    // no JSON: the status says it
  }
  return new ApiError(response.status, message, code);
}

export const get = async (path, signal) => (await send(path, { signal })).json();
export const post = async (path, body = {}) => (await send(path, { method: "POST", body })).json();
export const remove = async (path) => (await send(path, { method: "DELETE" })).json();

// What an endpoint answers; null where this server does not have it.
export async function getIfThere(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 405)) return null;
    throw error;
  }
}

// The events of a stream, as the server sends them.
export async function* events(path, options) {
  const response = await send(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const data = frame.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// All pages of a list, newest first, as far as they are wanted.
export function pages(path, limit = 100) {
  let after = "";
  let done = false;
  return {
    async next() {
      if (done) return { done };
      const page = await get(`${path}?limit=${limit}${after && `&after=${encodeURIComponent(after)}`}`); // where this fails it is asked for again
      done = !page.has_more || !page.last_id;
      after = page.last_id;
      return { value: page.data, done: false };
    },
  };
}
