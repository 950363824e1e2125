// What has gone wrong, in words: what happened, and what to do about it.

import { ApiError } from "./api.js";

const BY_CODE = {
  context_length_exceeded: "Shorten the message, attach less, or begin a new chat.",
  rate_limit_exceeded: "Wait a moment, then try again.",
};
const BY_STATUS = {
  403: "Whoever runs the server can allow it.",
  413: "Send less at once.",
  429: "Wait a moment, then try again.",
};
const AGAIN = "Try again.";
const LOG = "the server's log says more";

const asSentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;

// The words of the server, and advice that fits them.
export function explainMessage(message, code = "", status = code === "server_error" ? 500 : 0) {
  const said = (message || "it is not known why").trim();
  const ofTheServer = said.includes(LOG) ? AGAIN : `${AGAIN} If it stays like this, ${LOG}.`;
  const advice = BY_CODE[code] || BY_STATUS[status] || (status >= 500 ? ofTheServer : "");
  return `Error: ${asSentence(said)} ${advice}`.trim();
}

export const UNREACHABLE = "Error: The server could not be reached. See whether it is running and you are online, then try again.";

export function explain(error) {
  return error instanceof ApiError ? explainMessage(error.message, error.code, error.status) : UNREACHABLE;
}

// Whether an error is one of the server or of the way to it; another one is a mistake in this page.
export const isOutside = (error) => error instanceof ApiError || error instanceof TypeError;

export const NO_CONVERSATION = "Error: This conversation is not here. It was deleted, or the server was restarted without --store, or it belongs to another key. Begin a new chat.";
