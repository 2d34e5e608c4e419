// Questions to the service. The token lives in sessionStorage: this tab, until it is closed.

const KEY = "halfseen-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, signal) {
  const headers = { accept: "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let reply;
  try {
    reply = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The service does not answer.");
  }
  let body = null;
  try {
    body = await reply.json();
  } catch {
    // said below
  }
  if (!reply.ok) throw new Refused(reply.status, body?.error?.message ?? `The service answered ${reply.status}.`);
  if (body === null) throw new Refused(reply.status, "The service answered something that is not JSON.");
  return body;
}
